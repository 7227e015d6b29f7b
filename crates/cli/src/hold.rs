//! `sidestep detach` and `sidestep attach`.

use crate::Failure;
use crate::args::Hold;
use crate::output;
use sidestep_broker::broker::hold::Scope;
use sidestep_broker::client::{ClientError, Operator};
use std::process::ExitCode;

/// The process or connection does not exist.
#[derive(Debug, thiserror::Error)]
enum HoldError {
    #[error("process {0} is not under Sidestep; see `sidestep status`")]
    NoProcess(u32),
    #[error("there is no connection {link}.{slot}; see `sidestep status`")]
    NoConnection { link: u32, slot: u32 },
}

pub fn set(args: &Hold, detach: bool) -> Result<ExitCode, Failure> {
    let scope = args.scope();
    let operator = Operator::connect(&args.broker.address()).map_err(Failure::new)?;
    let count = operator.hold(scope, detach).map_err(|e| match (&e, scope) {
        (ClientError::Unknown, Scope::Process(pid)) => Failure::new(HoldError::NoProcess(pid)),
        (ClientError::Unknown, Scope::Connection { link, slot }) => {
            Failure::new(HoldError::NoConnection { link, slot })
        }
        _ => Failure::new(e),
    })?;
    let connections = if count == 1 { "connection" } else { "connections" };
    let what = if detach { "on the way back to the kernel" } else { "may be upgraded again" };
    output::line(format_args!("{count} {connections} {what}"));
    Ok(ExitCode::SUCCESS)
}
