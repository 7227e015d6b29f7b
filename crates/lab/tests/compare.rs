//! Comparisons of two results, and result files.

use crate::common;

use sidestep_lab::compare::{RunComparison, compare};
use sidestep_lab::result::{Figure, Run, read, write};
use sidestep_lab::stats::Verdict;
use std::fs;
use std::path::PathBuf;

fn verdict(comparison: &RunComparison, variant: &str, figure: Figure) -> Verdict {
    let mut lines = comparison.lines.iter();
    let line = lines.find(|line| line.variant == variant && line.figure == figure && line.cell["connections"] == "8");
    line.unwrap_or_else(|| panic!("no {variant} in {comparison}")).comparison.verdict
}

#[test]
fn a_run_is_no_different_from_itself() {
    let run = common::run();
    let comparison = compare(&run, &run);
    assert_eq!(comparison.lines.len(), 4 * 4 * 5);
    assert!(comparison.lines.iter().all(|line| line.comparison.verdict == Verdict::NoDifference));
    assert_eq!((comparison.warnings.len(), comparison.drift()), (0, (0, 16)));
}

#[test]
fn a_change_is_found_and_told_from_drift() {
    let (before, mut after) = (common::run(), common::run());
    common::scaled(&mut after, "sidestep", 1.2);
    let comparison = compare(&before, &after);
    assert_eq!(verdict(&comparison, "sidestep", Figure::Rate), Verdict::Better);
    assert_eq!(verdict(&compare(&after, &before), "sidestep", Figure::Rate), Verdict::Worse);
    assert_eq!(verdict(&comparison, "plain", Figure::Rate), Verdict::NoDifference);
    let text = comparison.to_string();
    assert!(text.contains("The baselines themselves differ in 0 of 16 comparisons."), "{text}");
    assert!(text.lines().any(|line| line.contains("sidestep") && line.ends_with("better")), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn other_surroundings_are_warned_of() {
    let (a, mut b) = (common::run(), common::run());
    b.machine.kernel = "6.12.9".into();
    b.machine.cores = 8;
    b.programs["load"].version = Some("wrk 4.2.0".into());
    b.programs.shift_remove("envoy");
    b.scenario.text.push_str("rounds: 5\n");
    let warnings = compare(&a, &b).warnings;
    let expected = [
        "the kernel differs: 6.1.0-28-amd64 in A, 6.12.9 in B",
        "the number of cores differs: 4 in A, 8 in B",
        "load differs: wrk 4.1.0 in A, wrk 4.2.0 in B",
        "envoy differs: /usr/local/bin/envoy in A, none in B",
        "the scenarios' texts differ",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn what_only_one_has_is_listed() {
    let (a, mut b) = (common::run(), common::run());
    b.cells.remove(0);
    b.variants.remove(2);
    b.cells.iter_mut().for_each(|cell| cell.trials.retain(|trial| trial.variant != "sidecar-redirected"));
    let comparison = compare(&a, &b);
    assert_eq!(comparison.only_a, ["variant sidecar-redirected", "cell connections 1"]);
    assert_eq!((comparison.only_b.len(), comparison.lines.len()), (0, 3 * 4 * 4));
}

#[test]
fn comparisons_survive_their_way_through_json() {
    let comparison = compare(&common::run(), &common::run());
    let text = serde_json::to_string(&comparison).expect("JSON");
    assert_eq!(serde_json::from_str::<RunComparison>(&text).expect("what was written"), comparison);
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json");
    (directory, path)
}

#[test]
fn results_are_read_as_they_were_written() {
    let (directory, path) = directory();
    let run = common::run();
    write(&path, &run).expect("written");
    write(&path, &run).expect("written over");
    let json = |run: &Run| serde_json::to_value(run).expect("JSON");
    assert_eq!(json(&read(&path).expect("read")), json(&run));
    assert_eq!(fs::read_dir(&directory).expect("listed").count(), 1, "nothing is left aside");
}

#[test]
fn a_result_that_cannot_be_written_leaves_nothing() {
    let (directory, path) = directory();
    fs::create_dir(&path).expect("something in the way");
    write(&path, &common::small()).expect_err("a directory is there");
    assert_eq!(fs::read_dir(&directory).expect("listed").count(), 1);
}

#[test]
fn errors_say_what_is_wrong_with_a_file() {
    let (directory, path) = directory();
    let says = |text: &str| {
        fs::write(&path, text).expect("written");
        read(&path).expect_err("no result").to_string()
    };
    assert!(says("name: x").contains("result.json: not JSON (expected"));
    assert!(says("[1]").contains("not a result of the lab"));
    assert!(says(r#"{"format": 99}"#).contains("has format 99, and this lab reads format 1"));
    assert!(says(r#"{"format": 1, "version": 5}"#).contains("damaged: version: invalid type"));
    assert!(read(directory.path()).expect_err("a directory").to_string().contains("not a file"));
    let missing = read(&directory.path().join("none.json")).expect_err("missing").to_string();
    assert!(missing.contains("none.json: No such file"), "{missing}");
}
