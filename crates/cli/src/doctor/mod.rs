//! `sidestep doctor`: what will and will not work on this machine and with this program, and why.

mod device;
mod files;
mod limits;
mod machine;
mod program;
pub mod selftest;
mod servers;
mod units;
mod users;

use crate::Failure;
use crate::args::Doctor;
use crate::output;
use crate::table::Table;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use users::Asker;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Ok,
    Limited,
    WillNotWork,
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// What to do about it; None: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    fn limited(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Limited, found: found.into(), advice: Some(advice.into()) }
    }

    fn fails(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::WillNotWork, found: found.into(), advice: Some(advice.into()) }
    }
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    machine: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Vec<Check>>,
}

/// What keeps the program's workers from sharing memory with programs of other users, and what helps. None: nothing that is known, or
/// this process is not root's, so that what it starts keeps its user.
pub fn users_of(program: &Path) -> Option<String> {
    let asker = Some(Asker::of_this_process()).filter(Asker::is_root)?;
    let check = users::check(program, asker, Path::new("/"));
    check.advice.map(|advice| format!("{}; {advice}", check.found))
}

pub fn doctor(args: &Doctor) -> Result<ExitCode, Failure> {
    let mut machine = machine::checks(&args.broker.address());
    machine.extend(device::checks(&args.devices));
    let program = args.binary.as_ref().map(|name| program::checks(name));
    let ok = machine.iter().chain(program.iter().flatten()).all(|check| check.verdict == Verdict::Ok);
    let report = Report { ok, machine, program };
    if args.json {
        output::line(serde_json::to_string_pretty(&report).map_err(Failure::new)?);
    } else {
        output::print(text(&report, args.binary.as_deref().map(|name| name.to_string_lossy())));
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &Report, program: Option<std::borrow::Cow<'_, str>>) -> String {
    let mut out = format!("This machine\n{}", table(&report.machine));
    if let (Some(checks), Some(name)) = (&report.program, program) {
        out += &format!("\nProgram {name}\n{}", table(checks));
    }
    let advice: Vec<_> = report.machine.iter().chain(report.program.iter().flatten()).collect();
    for check in advice {
        if let Some(what) = &check.advice {
            out += &format!("\n{}: {what}\n", check.name);
        }
    }
    out
}

fn table(checks: &[Check]) -> Table {
    let mut table = Table::new(&["CHECK", "RESULT", "FOUND"]);
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Limited => "limited",
            Verdict::WillNotWork => "will not work",
        };
        table.row([check.name.into(), verdict.into(), check.found.clone()]);
    }
    table
}
