//! `sidestep stack --check`: what a device can do, and what speaks against it.

use sidestep_device::Hook;
use sidestep_device::probe::{Report, probe};
use sidestep_error::chain;
use std::process::ExitCode;

/// Prints what is known of the devices.
pub fn check(devices: &[String], as_json: bool) -> ExitCode {
    let reports = match devices.iter().map(|device| probe(device)).collect::<Result<Vec<_>, _>>() {
        Ok(reports) => reports,
        Err(error) => {
            tracing::error!("{}", chain(&error));
            return ExitCode::FAILURE;
        }
    };
    if as_json {
        println!("{:#}", serde_json::Value::Array(reports.iter().map(json).collect()));
    } else {
        reports.iter().for_each(|report| print!("{}", text(report)));
    }
    if reports.iter().all(|report| report.concerns.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn json(report: &Report) -> serde_json::Value {
    let Report { name, driver, mtu, queues, has_native, has_zero_copy, program, .. } = report;
    let concerns: Vec<String> = report.concerns.iter().map(ToString::to_string).collect();
    let advice: Vec<String> = report.concerns.iter().map(|concern| concern.advice(name)).collect();
    serde_json::json!({
        "device": name, "driver": driver, "mtu": mtu, "queues": queues, "native_xdp": has_native,
        "zero_copy": has_zero_copy, "mode": mode(report), "xdp_program": program, "concerns": concerns,
        "advice": advice,
    })
}

/// Where the device's program would run, and who would copy frames.
fn mode(report: &Report) -> String {
    let hook = report.hook();
    let copies = if hook == Hook::Native && report.has_zero_copy { "without copies" } else { "with copies" };
    format!("{}, {copies}", hook.name())
}

fn text(report: &Report) -> String {
    let Report { name, driver, mtu, queues, .. } = report;
    let driver = if driver.is_empty() { "unknown" } else { driver };
    let mut out = format!("{name}: driver {driver}, MTU {mtu}, receive queues {queues}, by {}\n", mode(report));
    for concern in &report.concerns {
        out += &format!("  concern: {concern}; {}\n", concern.advice(name));
    }
    out
}
