//! What the tools say, recorded, and read again; and what becomes of it when it is cut off or wrong.

mod cases;

use cases::{CASES, Case};
use sidestep_lab::load::{LoadError, Outcome, require_program};
use std::fs;
use std::process::Command;

/// Runs every tool against the servers of recorded/record.sh, which calls this.
#[test]
#[ignore = "needs the servers that recorded/record.sh starts"]
fn record() {
    for case in CASES {
        let _ = fs::remove_dir_all(case.folder());
        fs::create_dir_all(case.folder()).expect("a folder");
        let argv = case.job().tool.argv(&case.job()).expect("a job that can be done");
        let program = require_program(&argv[0]).expect("an installed tool");
        // redis-benchmark tries for ever where nobody listens.
        let mut limited = Command::new("timeout");
        let output = limited.arg("20").arg(program).args(&argv[1..]).output().expect("a tool that starts");
        println!("{}: {:?}, {}", case.name, argv, output.status);
        fs::write(case.folder().join("stdout"), &output.stdout).expect("a file");
    }
}

fn read(case: &Case) -> Result<Outcome, LoadError> {
    let stdout = String::from_utf8_lossy(&fs::read(case.folder().join("stdout")).expect("recorded")).into_owned();
    case.job().tool.read(&case.job(), &stdout)
}

#[test]
fn what_was_recorded_is_read() {
    for case in CASES {
        println!(
            "{}: {:?}",
            case.name,
            read(case).map(|o| (
                o.requests,
                o.errors,
                o.seconds,
                o.bytes,
                o.latency.map(|l| (l.count(), l.percentile(50.0), l.max()))
            ))
        );
    }
}
