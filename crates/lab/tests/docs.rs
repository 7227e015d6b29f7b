//! The examples in docs/lab.md work: the scenario and the command lines are run.

use crate::running;

use crate::running::Lab;
use sidestep_lab::result::read;
use std::process::Command;

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab.md")).expect("docs/lab.md")
}

/// The code blocks of a language.
fn blocks(language: &str) -> Vec<String> {
    let (page, fence) = (page(), format!("```{language}\n"));
    let pieces = page.split(&fence).skip(1);
    pieces.map(|piece| piece.split("```").next().unwrap_or_default().to_string()).collect()
}

/// Rings need the release build of the library, so only the plain variant is measured; other tests measure rings.
#[test]
fn the_complete_scenario_is_one() {
    let [scenario, goals] = &blocks("yaml")[..] else { panic!("one scenario, and goals for it") };
    // If tests run in parallel a request may take seconds, which wrk counts as an error.
    let lab = Lab::new(&(scenario.replace("design: {", "design: {errors: 0.99, ") + goals));
    let done = lab.run(&["--quick", "--only", "plain", "--rounds", "1", "--out", "test.json"]);
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("\nGoal not measured: at most 3 % slower than plain.\n"), "{said}");
    let run = lab.result();
    for trial in &run.cells[0].trials {
        assert!(trial.outcome.as_ref().is_some_and(|outcome| outcome.requests > 100), "{trial:?}");
    }
}

/// The page shows the columns of the actual output.
#[test]
fn the_profile_looks_as_it_is_shown() {
    let shown = blocks("text").into_iter().find(|block| block.starts_with("VARIANT")).expect("a profile");
    let burner = "server: {run: [sh, -c, 'exec timeout 60 dd if=/dev/zero of=/dev/null']}";
    let lab = Lab::new(&running::scenario("command: [sleep, 1]", burner, ""));
    let done = lab.run(&["--only", "plain", "--rounds", "1", "--profile"]);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let headings = said.lines().find(|line| line.starts_with("VARIANT  ")).unwrap_or_else(|| panic!("{said}"));
    let words = |line: &str| {
        line.split("  ").map(str::trim).filter(|word| !word.is_empty()).map(String::from).collect::<Vec<_>>()
    };
    // System calls have a column only if samples were found in them.
    let shown = words(shown.lines().next().expect("a line"));
    assert_eq!(words(headings)[..7], shown[..7], "{said}");
}

#[test]
fn the_command_lines_of_mine_are_understood() {
    let dir = tempfile::tempdir().expect("a directory");
    let blocks = blocks("sh").join("\n").replace("\\\n", " ");
    let lines: Vec<&str> = blocks.lines().filter(|line| line.starts_with("sidestep lab run mine")).collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let words = line.replacen("sidestep lab", env!("CARGO_BIN_EXE_sidestep-lab"), 1);
        let script = format!("{words} --variants plain --rounds 1 --seconds 0.2 --out one.json --html none");
        let done = Command::new("sh").args(["-c", &script]).current_dir(&dir).output().expect("a shell");
        assert!(done.status.success(), "{line}: {done:?}");
        let run = read(&dir.path().join("one.json")).expect("a result");
        assert!(run.cells.iter().flat_map(|cell| &cell.trials).all(|trial| trial.counts() || trial.repeated), "{line}");
    }
}
