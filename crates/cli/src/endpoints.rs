//! What commands are about: a broker, an agent, a connection.

use sidestep_abi::env;
use sidestep_agent_api::DEFAULT_SOCKET;
use sidestep_broker::broker::hold::Scope;
use sidestep_broker::listen::Address;
use std::path::PathBuf;

/// The agent to query, and how to print its answer.
#[derive(clap::Args)]
pub struct AgentSocket {
    /// The agent's socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Print JSON with stable field names, and with names in full (a table is cut to the terminal's width)
    #[arg(long)]
    pub json: bool,
}

/// Which broker to talk to.
#[derive(clap::Args)]
pub struct Broker {
    /// The broker's address: @name, or an absolute path [default: @sidestep-UID]
    #[arg(long, value_name = "ADDRESS", env = env::BROKER)]
    pub address: Option<Address>,
}

impl Broker {
    pub fn address(&self) -> Address {
        self.address.clone().unwrap_or_else(Address::of_this_user)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected LINK.SLOT, such as 3.17, as `sidestep status` prints it")]
pub struct NoConnection;

/// `LINK.SLOT`
pub fn connection(text: &str) -> Result<Scope, NoConnection> {
    let parsed = text.split_once('.').and_then(|(link, slot)| Some((link.parse().ok()?, slot.parse().ok()?)));
    let (link, slot) = parsed.ok_or(NoConnection)?;
    Ok(Scope::Connection { link, slot })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_named_as_status_prints_them() {
        assert_eq!(connection("3.17"), Ok(Scope::Connection { link: 3, slot: 17 }));
        for bad in ["", "3", "3.", ".17", "3.x", "-1.2"] {
            assert!(connection(bad).is_err(), "{bad}");
        }
    }
}
