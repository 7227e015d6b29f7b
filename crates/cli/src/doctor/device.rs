//! Whether the stack can use a device: the stack's program says so itself.

use super::Check;
use crate::locate;
use serde::Deserialize;
use std::process::Command;

/// What `sidestep-stack --check --json` prints of a device.
#[derive(Deserialize)]
struct Report {
    device: String,
    driver: String,
    mtu: u32,
    queues: u32,
    mode: String,
    /// Id of an XDP program that is attached.
    xdp_program: Option<u32>,
    concerns: Vec<String>,
    /// What to do about each.
    advice: Vec<String>,
}

/// One check for each device.
pub fn checks(devices: &[String]) -> Vec<Check> {
    devices.iter().map(|device| check(device)).collect()
}

fn check(device: &str) -> Check {
    let name = "stack's device";
    let program = match locate::stack() {
        Ok(program) => program,
        Err(error) => {
            return Check::fails(name, error.to_string(), "build it: cargo build --release -p sidestep-stack");
        }
    };
    let said = match Command::new(program).args(["--check", "--json", "--device", device]).output() {
        Ok(said) => said,
        Err(error) => return Check::fails(name, error.to_string(), "see whether the program can be executed"),
    };
    match serde_json::from_slice::<Vec<Report>>(&said.stdout) {
        Ok(reports) if !reports.is_empty() => read(name, &reports[0]),
        _ => {
            let found = String::from_utf8_lossy(&said.stderr).trim().to_owned();
            Check::fails(name, found, "see `ip link` for the names of devices")
        }
    }
}

fn read(name: &'static str, report: &Report) -> Check {
    let Report { device, driver, mtu, queues, mode, concerns, advice, .. } = report;
    let other = report.xdp_program.map_or_else(String::new, |id| format!(", XDP program {id} is attached"));
    let found = format!("{device}: driver {driver}, MTU {mtu}, queues {queues}, by {mode}{other}");
    if concerns.is_empty() {
        return Check::ok(name, found);
    }
    Check::limited(name, format!("{found}; {}", concerns.join("; ")), advice.join("; "))
}
