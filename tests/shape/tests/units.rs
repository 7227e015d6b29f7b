//! The units of dist/systemd, as systemd reads them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Exposure by `systemd-analyze security`, in tenths: 0 is the best, 100 the worst.
const MOST_EXPOSED: u32 = 35;

fn units(ending: &str) -> Vec<PathBuf> {
    let directory = std::fs::read_dir(sidestep_shape::path("dist/systemd")).expect("dist/systemd");
    let all = directory.map(|entry| entry.expect("an entry").path());
    let mut units: Vec<_> = all.filter(|path| path.extension().is_some_and(|one| one == ending)).collect();
    units.sort();
    units
}

/// The unit's text as a file of its own name, beside all others, with a program that is there on every machine.
fn analyze(unit: &Path, text: &str, words: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let place = |unit: &Path| directory.path().join(unit.file_name().expect("a name"));
    let runnable = |text: &str| text.replace("ExecStart=/usr/bin/", "ExecStart=/bin/true --");
    for other in [units("service"), units("socket")].concat() {
        std::fs::write(place(&other), runnable(&self::text(&other))).expect("written");
    }
    std::fs::write(place(unit), runnable(text)).expect("written");
    let mut command = Command::new("systemd-analyze");
    command.args(words).arg(place(unit)).env("SYSTEMD_PAGER", "").env("LC_ALL", "C");
    command.output().expect("systemd-analyze (Debian package systemd) runs")
}

fn text(unit: &Path) -> String {
    std::fs::read_to_string(unit).expect("a unit")
}

#[test]
fn systemd_understands_every_line() {
    let verify = |unit: &PathBuf, text: &str| analyze(unit, text, &["verify", "--man=no"]);
    let (services, sockets) = (units("service"), units("socket"));
    assert_eq!((services.len(), sockets.len()), (3, 1));
    let each =
        services.iter().map(|unit| (unit, "ProtectSystem=")).chain(sockets.iter().map(|unit| (unit, "SocketMode=")));
    for (unit, known) in each {
        let said = verify(unit, &text(unit));
        assert!(said.status.success() && said.stderr.is_empty(), "{}: {said:?}", unit.display());
        // It would have said so.
        let unknown = known.replace('=', "s=");
        let wrong = verify(unit, &text(unit).replace(known, &unknown));
        assert!(String::from_utf8_lossy(&wrong.stderr).contains(unknown.trim_end_matches('=')), "{wrong:?}");
    }
}

#[test]
fn little_is_exposed() {
    let threshold = format!("--threshold={MOST_EXPOSED}");
    for unit in units("service") {
        let said = analyze(&unit, &text(&unit), &["security", "--offline=yes", "--no-pager", &threshold]);
        let table = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success() && table.contains("Overall exposure level"), "{table}");
    }
}
