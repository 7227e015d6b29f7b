//! The units of dist/systemd, as systemd reads them.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Exposure by `systemd-analyze security`, in tenths: 0 is the best, 100 the worst.
const MOST_EXPOSED: u32 = 35;

fn units() -> Vec<PathBuf> {
    let directory = std::fs::read_dir(sidestep_shape::path("dist/systemd")).expect("dist/systemd");
    let mut units: Vec<_> = directory.map(|entry| entry.expect("an entry").path()).collect();
    units.sort();
    units
}

/// The unit's text as a file of its own name, with a program that is there on every machine.
fn analyze(unit: &std::path::Path, text: &str, words: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join(unit.file_name().expect("a name"));
    std::fs::write(&copy, text.replace("ExecStart=/usr/bin/", "ExecStart=/bin/true --")).expect("written");
    let mut command = Command::new("systemd-analyze");
    command.args(words).arg(&copy).env("SYSTEMD_PAGER", "").env("LC_ALL", "C");
    command.output().expect("systemd-analyze (Debian package systemd) runs")
}

fn text(unit: &std::path::Path) -> String {
    std::fs::read_to_string(unit).expect("a unit")
}

#[test]
fn systemd_understands_every_line() {
    let verify = |unit: &PathBuf, text: &str| analyze(unit, text, &["verify", "--man=no"]);
    assert_eq!(units().len(), 3);
    for unit in units() {
        let said = verify(&unit, &text(&unit));
        assert!(said.status.success() && said.stderr.is_empty(), "{}: {said:?}", unit.display());
        // It would have said so.
        let wrong = verify(&unit, &text(&unit).replace("ProtectSystem=strict", "ProtectSystems=strict"));
        assert!(String::from_utf8_lossy(&wrong.stderr).contains("'ProtectSystems'"), "{wrong:?}");
    }
}

#[test]
fn little_is_exposed() {
    let threshold = format!("--threshold={MOST_EXPOSED}");
    for unit in units() {
        let said = analyze(&unit, &text(&unit), &["security", "--offline=yes", "--no-pager", &threshold]);
        let table = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success() && table.contains("Overall exposure level"), "{table}");
    }
}
