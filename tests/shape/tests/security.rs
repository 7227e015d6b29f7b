//! SECURITY.md: each promise has a test that exists; and what is promised of the source itself.

use sidestep_shape::{path, text};
use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = "SECURITY.md";
/// Of lines: who reports a fault reads all of it.
const LONGEST: usize = 150;

/// `file::name` in backquotes.
fn named(page: &str) -> BTreeSet<(&str, &str)> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter_map(|text| text.split_once("::")).collect()
}

/// A function by this name that is run as a test, in the manner of the file's language; or a reason that a scenario demands.
fn holds(file: &str, name: &str) -> bool {
    let Ok(source) = std::fs::read_to_string(path(file)) else { return false };
    match Path::new(file).extension().and_then(|e| e.to_str()) {
        Some("py") if file.starts_with("tests/hosts/") => is_case(&source, name),
        Some("py") if file.starts_with("tests/cluster/") => source.contains(&format!("\ndef {name}(cluster, checks)")),
        Some("py") => name.starts_with("test_") && source.contains(&format!("\ndef {name}(case)")),
        Some("rs") if file.starts_with("tests/hostile/") => source.contains(&format!("Reason::{name}")),
        Some("rs") => is_test(&source, name),
        _ => false,
    }
}

/// `@case`, perhaps with arguments, and the function.
fn is_case(source: &str, name: &str) -> bool {
    let Some((before, _)) = source.split_once(&format!("\ndef {name}(hosts, seed)")) else { return false };
    before.lines().next_back().is_some_and(|line| line == "@case" || line.starts_with("@case("))
}

/// `#[test]`, perhaps other attributes, and the function; not one that is ignored.
fn is_test(source: &str, name: &str) -> bool {
    let mut lines = source.lines().map(str::trim).rev().skip_while(|line| !line.starts_with(&format!("fn {name}(")));
    lines.next().is_some() && {
        let attributes: Vec<&str> = lines.take_while(|line| line.starts_with("#[") || line.starts_with("//")).collect();
        attributes.contains(&"#[test]") && !attributes.iter().any(|line| line.starts_with("#[ignore"))
    }
}

#[test]
fn each_promise_has_a_test_that_exists() {
    let page = text(PAGE);
    let named = named(&page);
    assert!(named.len() > 40, "the page is not read: {named:?}");
    let missing: Vec<_> = named.into_iter().filter(|(file, name)| !holds(file, name)).collect();
    assert!(missing.is_empty(), "{PAGE} names what is no test: {missing:#?}");
}

/// A row of a table without a test would be a promise that nobody holds.
#[test]
fn no_promise_is_without_a_test() {
    let page = text(PAGE);
    let promises = page.split_once("## What we promise").and_then(|(_, rest)| rest.split_once("\n## "));
    let (promises, _) = promises.expect("the section and the next one");
    let rows = promises.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| promise "));
    let without: Vec<_> = rows.filter(|row| named(row).is_empty()).collect();
    assert!(without.is_empty(), "{without:#?}");
}

#[test]
fn what_is_no_test_is_found_out() {
    let here = "tests/shape/tests/security.rs";
    assert!(holds(here, "what_is_no_test_is_found_out"));
    for (file, name) in [
        (here, "holds"),
        (here, "what_is_no_test"),
        (here, ""),
        ("tests/shape/tests/none.rs", "what_is_no_test_is_found_out"),
        ("tests/apps/programs/privileged.py", "check_fetched"),
        ("tests/hostile/src/rounds.rs", "NoSuchReason"),
    ] {
        assert!(!holds(file, name), "{file}::{name}");
    }
}

#[test]
fn the_page_can_be_read_at_once() {
    let lines = text(PAGE).lines().count();
    assert!(lines < LONGEST, "{PAGE} has {lines} lines");
}

/// Calls that send signals, as rustix, nix, libc and our own code name them.
const SIGNALS: [&str; 12] = [
    "kill_process",
    "kill_process_group",
    "kill_current_process_group",
    "pidfd_send_signal",
    "libc::kill",
    "libc::killpg",
    "libc::raise",
    "SYS_kill",
    "SYS_tkill",
    "SYS_tgkill",
    "SYS_rt_sigqueueinfo",
    "SYS_pidfd_send_signal",
];
/// To the process itself, which ends.
const ABORT: &str = "crates/sys/src/process.rs";

/// Neither the broker nor the library in a program sends one to any process but its own.
#[test]
fn nobody_is_sent_a_signal() {
    let mut read = 0;
    for folder in ["crates/broker/src", "crates/preload/src", "crates/sys/src", "crates/conn/src", "crates/ring/src"] {
        for (file, source) in sources(folder) {
            read += 1;
            let calls = source.lines().filter(|line| SIGNALS.iter().any(|signal| line.contains(signal)));
            let to_others: Vec<_> = calls
                .filter(|line| !(file == ABORT && line.contains("call(libc::SYS_kill, [pid() as usize,")))
                .collect();
            assert!(to_others.is_empty(), "{file}: {to_others:#?}");
        }
    }
    assert!(read > 100, "{read} files");
}

/// Names and texts of all sources below a folder.
fn sources(folder: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(path(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let names =
        entries.map(|entry| format!("{folder}/{}", entry.expect("an entry").file_name().to_str().expect("utf-8")));
    let read = |name: String| match name.strip_suffix(".rs") {
        Some(_) => vec![(name.clone(), text(&name))],
        None if path(&name).is_dir() => sources(&name),
        None => Vec::new(),
    };
    names.flat_map(read).collect()
}
