//! `sidestep reasons`: the meaning of reason codes.

use crate::Failure;
use crate::args::Reasons;
use crate::output;
use crate::table::Table;
use serde::Serialize;
use sidestep_abi::Reason;
use std::process::ExitCode;

#[derive(Serialize)]
struct Entry {
    code: u8,
    name: &'static str,
    meaning: &'static str,
}

pub fn print(args: &Reasons) -> Result<ExitCode, Failure> {
    let entries: Vec<_> =
        Reason::ALL.iter().map(|&r| Entry { code: r as u8, name: r.name(), meaning: r.meaning().trim() }).collect();
    if args.json {
        output::line(serde_json::to_string_pretty(&entries).map_err(Failure::new)?);
    } else {
        let mut table = Table::new(&[">CODE", "NAME", "MEANING"]);
        for entry in entries {
            table.row([entry.code.to_string(), entry.name.into(), entry.meaning.into()]);
        }
        output::print(table);
    }
    Ok(ExitCode::SUCCESS)
}

/// The meaning of a reason by name; empty for an unknown one.
pub fn meaning(name: &str) -> &'static str {
    Reason::ALL.iter().find(|r| r.name() == name).map_or("", |r| r.meaning().trim())
}
