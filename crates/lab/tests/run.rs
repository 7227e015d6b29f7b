//! Whole runs, and their failures: nothing stays behind. They need root for cgroups and users.

use crate::running;

use crate::running::{Lab, scenario};
use sidestep_lab::result::Ended;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Two variants, of which the second takes `slower` seconds.
fn sleeper(slower: &str) -> String {
    scenario("command: [sleep, \"${time}\"]", "", &format!("values: {{time: {slower}}}"))
}

#[test]
fn a_difference_is_found_and_the_control_is_told_from_it() {
    let lab = Lab::new(&sleeper("0.08"));
    let done = lab.run(&["--rounds", "6", "--json"]);
    assert!(done.status.success(), "{done:?}");
    let said: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let lines = said["lines"].as_array().expect("lines");
    let beside = |variant: &str| {
        let line = lines.iter().find(|line| line["variant"] == variant && line["figure"] == "p50").expect("a line");
        line["beside"].clone()
    };
    assert_eq!(beside("other")["verdict"], "worse", "{said}");
    assert!(beside("other")["ratio"].as_f64().is_some_and(|ratio| ratio > 2.0), "{said}");
    // By chance its verdict is wrong in a few of a hundred runs; tests/statistics.rs checks that rate.
    assert!(beside("plain (again)")["ratio"].as_f64().is_some_and(|ratio| (0.5..2.0).contains(&ratio)), "{said}");
    lab.assert_nothing_is_left();
}

#[test]
fn a_program_that_is_missing_is_named_with_its_package() {
    let lab = Lab::new(&scenario("command: [\"true\"]", "server: {run: [memcached-of-nobody]}", ""));
    assert!(lab.is_not_begun(&[]).contains("memcached-of-nobody is not installed; run: "));
    lab.assert_nothing_is_left();
}

#[test]
fn a_server_that_dies_at_its_start_is_quoted() {
    let server = "server: {run: [sh, -c, 'echo no such configuration >&2; exit 3'], ready: {port: 9}}";
    let said = Lab::new(&scenario("command: [\"true\"]", server, "")).fails(&["--rounds", "3"]);
    assert!(said.contains("server has ended at its start") && said.contains("no such configuration"), "{said}");
    assert!(said.contains("nothing could be measured"), "{said}");
}

#[test]
fn a_server_that_never_listens_is_waited_for_so_long_and_no_longer() {
    let server = "server: {run: [sleep, 60], ready: {port: 9, seconds: 0.2}}";
    let begun = Instant::now();
    let said = Lab::new(&scenario("command: [\"true\"]", server, "")).fails(&["--rounds", "1"]);
    assert!(said.contains("there is no port 9 to listen at"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_server_that_dies_under_load_is_quoted() {
    let server = "server: {run: [sh, -c, 'sleep 0.1; echo out of luck >&2; exit 1']}";
    let said = Lab::new(&scenario("command: [sleep, 0.3]", server, "")).fails(&["--rounds", "1"]);
    assert!(said.contains("server has ended by itself") && said.contains("out of luck"), "{said}");
}

#[test]
fn a_port_in_use_is_the_second_servers_failure() {
    let server = "first: {run: &iperf [iperf3, --server, --port, 5201], ready: {port: 5201}}\n  second: {run: *iperf, ready: {port: 5202, seconds: 5}}";
    let said = Lab::new(&scenario("command: [\"true\"]", server, "")).fails(&["--rounds", "1"]);
    assert!(said.contains("second has ended at its start") && said.contains("Address already in use"), "{said}");
}

#[test]
fn a_load_that_fails_is_a_failure() {
    let said = Lab::new(&scenario("command: [sh, -c, 'echo cannot >&2; exit 1']", "", "")).fails(&["--rounds", "1"]);
    assert!(said.contains("load") && said.contains("cannot"), "{said}");
}

#[test]
fn a_load_that_hangs_is_ended() {
    let said = Lab::new(&scenario("command: [sleep, 1000]\n  patience: 0.3", "", "")).fails(&["--rounds", "1"]);
    assert!(said.contains("has not ended 0.3 s after its 0.1 s (load.patience)"), "{said}");
}

/// A failing variant does not affect the others.
#[test]
fn a_variant_that_always_fails_is_given_up_and_the_rest_is_measured() {
    let lab = Lab::new(
        &scenario("command: [sh, -c, '${what}']", "", "values: {what: 'false'}")
            .replace("time: 0.02", "what: sleep 0.02"),
    );
    let done = lab.run(&["--rounds", "6"]);
    assert!(done.status.success(), "{done:?}");
    let run = lab.result();
    assert!(run.notes.iter().any(|note| note.starts_with("other was given up after 3 failures")), "{:?}", run.notes);
    assert_eq!(run.cells[0].trials.iter().filter(|trial| trial.variant == "plain" && trial.counts()).count(), 6);
    assert!(lab.fails(&["--rounds", "1", "--strict"]).contains("other: load has failed"));
}

/// Error answers are quick: they must not win.
#[test]
fn a_load_whose_requests_fail_is_no_figure() {
    let text =
        scenario("command: [sh, -c, 'read x <${dir}/x; n=$((x + 1)); echo $n >${dir}/x; test $((n % 2)) = 0']", "", "");
    let said = Lab::new(&(text + "files: {x: \"0\\n\"}\n")).fails(&["--rounds", "1"]);
    assert!(said.contains("requests failed (design.errors)"), "{said}");
}

/// When a warm-up is ended, everything that it has started is ended.
#[test]
fn nothing_of_a_warm_up_is_left_when_the_load_begins() {
    let load = "command: [sh, -c, '{ sleep 4712; } & pgrep -f \"^sleep 4712\" | wc -l >>${shared}/count; sleep 0.2; kill $!']\n  warmup: 0.05";
    let text = scenario(load, "", "").replace("  warmup: 0\n", "");
    let lab = Lab::new(&(text + "checks: [{run: [sh, -c, '! grep -q [2-9] ${shared}/count']}]\n"));
    let done = lab.run(&["--rounds", "1"]);
    assert!(done.status.success(), "{done:?}");
}

/// Two programs that stand for those of another release: each leaves a file when it is used.
fn another_release() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a directory");
    let run = "while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"";
    let broker = "while [ \"$1\" != --address ]; do shift; done; : >\"$2\"; exec sleep 60";
    for (name, then) in [("sidestep", run), ("sidestepd", broker)] {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n: >\"$0.was-used\"\n{then}\n")).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
    }
    dir
}

#[test]
fn rings_of_another_release_are_by_its_programs() {
    let release = another_release();
    let text = |release: &std::path::Path| {
        let other = format!("rings: {{release: {}}}", release.display());
        scenario("command: [sleep, \"${time}\"]", "", &other)
    };
    let done = Lab::new(&text(release.path())).run(&["--rounds", "1", "--strict"]);
    assert!(done.status.success(), "{done:?}");
    for name in ["sidestep.was-used", "sidestepd.was-used"] {
        assert!(release.path().join(name).exists(), "{name}");
    }
    let said = Lab::new(&text(&release.path().join("elsewhere"))).is_not_begun(&["--rounds", "1"]);
    assert!(said.contains("rings.release: there is no /") && said.contains("/elsewhere/sidestep"), "{said}");
}

#[test]
fn a_check_that_fails_fails_the_trial() {
    let text = sleeper("0.02") + "checks: [{run: [sh, -c, 'echo the load went astray >&2; exit 1']}]\n";
    let said = Lab::new(&text).fails(&["--rounds", "1"]);
    assert!(said.contains("check 1 failed") && said.contains("the load went astray"), "{said}");
}

/// A check that fails for one variant fails the run, although there are figures of the others.
#[test]
fn a_check_that_fails_in_one_variant_fails_the_run() {
    let text =
        sleeper("0.02") + "checks: [{run: [sh, -c, 'echo another answer >&2; exit 1'], when: {variants: [other]}}]\n";
    let lab = Lab::new(&text);
    let said = lab.fails(&["--rounds", "1"]);
    assert!(said.contains("other: check 1 failed") && said.contains("another answer"), "{said}");
    let run = lab.result();
    assert!(run.cells[0].trials.iter().any(|trial| trial.variant == "plain" && trial.counts()));
    assert_eq!(run.wrong.len(), 1, "{:?}", run.wrong);
}

/// What was measured before has left its traces in a set-up.
#[test]
fn a_trial_that_is_repeated_has_a_set_up_of_its_own_where_each_trial_has() {
    let dir = tempfile::tempdir().expect("a directory");
    let starts = dir.path().join("starts");
    let run = format!("echo up >>{}; touch ${{dir}}/up; exec sleep 60", starts.display());
    let server = format!("server: {{run: [sh, -c, '{run}'], ready: {{path: '${{dir}}/up'}}}}");
    let text =
        scenario("command: [sleep, 0.3]", &server, "").replace("foreign: 0.999", "foreign: 0.01, restart: trial");
    let lab = Lab::new(&text);
    let is_done = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        // To the lab this is somebody else's work, which disturbs.
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        let done = lab.run(&["--rounds", "1"]);
        is_done.store(true, Relaxed);
        done
    });
    assert!(done.status.success(), "{done:?}");
    let run = lab.result();
    let trials = &run.cells[0].trials;
    assert!(trials.iter().any(|trial| trial.repeated), "{trials:?}");
    let starts = std::fs::read_to_string(starts).expect("what set-ups have written");
    assert_eq!(starts.lines().count(), trials.len());
}

/// What a check finds out belongs to the figures: each trial has its own words, and the report shows all of them.
#[test]
fn what_a_check_says_is_a_note_if_the_scenario_wants_that() {
    let count = "n=$(cat ${shared}/n 2>/dev/null || echo 0); n=$((n + 1)); echo $n >${shared}/n; echo turn $n";
    let check = format!("  - {{run: [sh, -c, '{count}'], noted: true, when: {{variants: [other]}}}}\n");
    let lab = Lab::new(&(sleeper("0.02") + "checks:\n  - {run: [echo, not for readers]}\n" + &check));
    let done = lab.run(&["--rounds", "2"]);
    assert!(done.status.success(), "{done:?}");
    let run = lab.result();
    // On a busy machine a trial runs again, and has a turn more.
    assert!(run.notes.iter().any(|note| note.starts_with("other: turn 1; turn 2")), "{:?}", run.notes);
    assert!(!run.notes.iter().any(|note| note.contains("not for readers")), "{:?}", run.notes);
}

/// The lab counts the bytes that took a variant's way, and a check can require some.
#[test]
fn a_way_that_no_byte_went_fails_the_run_where_a_check_demands_it() {
    let lab = Lab::new(&(sleeper("0.02") + "checks: [{moved: [by ring], when: {variants: [other]}}]\n"));
    let said = lab.fails(&["--rounds", "1"]);
    assert!(said.contains("other: not a byte of the load went by ring (bytes: nothing was counted)"), "{said}");
    let lab = Lab::new(&(sleeper("0.02") + "checks: [{run: [\"true\"], moved: [by ring]}]\n"));
    assert!(lab.is_not_begun(&[]).contains("checks: each check has either `run` (a command) or `moved` (ways)"));
}

/// Cells that differ only in their checks share a set-up. Each check runs once, after the first turn to which it applies.
#[test]
fn checks_of_some_cells_are_made_in_those() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = dir.path().join("made");
    let check = |word: &str, when: &str| {
        format!("  - {{run: [sh, -c, 'echo {word} ${{size}} >>{}'], when: {{{when}}}}}\n", made.display())
    };
    let checks = check("some", "variants: [plain], cells: {size: [2]}") + &check("all", "variants: [plain]");
    let text = sleeper("0.02").replace("design: {", "design: {restart: never, control: false, ");
    let lab = Lab::new(&(text + "axes: {size: [1, 2]}\nchecks:\n" + &checks));
    let done = lab.run(&["--rounds", "3", "--strict"]);
    assert!(done.status.success(), "{done:?}");
    let said = std::fs::read_to_string(made).expect("what checks have written");
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["all 1", "all 2", "some 2"]);
}

#[test]
fn cells_that_are_skipped_are_not_measured() {
    let text = sleeper("0.02") + "axes: {a: [1, 2], b: [1, 2]}\nskip: [{a: [1], b: [1, 2]}, {a: [2], b: [1]}]\n";
    let lab = Lab::new(&text);
    assert!(lab.run(&["--rounds", "1"]).status.success());
    let titles: Vec<String> = lab.result().cells.iter().map(|cell| cell.title()).collect();
    assert_eq!(titles, ["a 2, b 2"]);
    assert!(
        Lab::new(&text.replace("b: [1]}]", "c: [1]}]")).is_not_begun(&[]).contains("skip.2.cells: 'c' is none of a, b")
    );
    assert!(
        Lab::new(&text.replace("{a: [2], b: [1]}", "{a: [2]}")).is_not_begun(&[]).contains("all cells are skipped")
    );
}

#[test]
fn values_can_be_set_by_an_option() {
    let lab =
        Lab::new(&scenario("command: [sh, -c, 'test ${word} = other']", "", "").replace("time: 0.02", "word: one"));
    assert!(lab.run(&["--rounds", "1", "--set", "word=other"]).status.success());
    assert!(lab.fails(&["--rounds", "1"]).contains("has failed each time"));
    assert!(lab.is_not_begun(&["--set", "wrod=other"]).contains("--set: 'wrod' is none of word"));
}

#[test]
fn nothing_outside_can_be_reached() {
    let text = scenario("command: [sh, -c, '! ip route get 192.0.2.1 && ! ip -6 route get 2001:db8::1']", "", "");
    let done = Lab::new(&text).run(&["--rounds", "1"]);
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_scenario_that_is_wrong_is_not_begun() {
    for (wrong, why) in [
        ("baseline: plian", "baseline: 'plian' is none of plain, other"),
        ("baseline: plain\nvariant: {}", "unknown field"),
        ("baseline: plain\nfiles: {load: x}", "files: 'load' is a path, or reserved for the lab"),
        ("baseline: plain\naxes: {dir: [1]}", "'dir' is reserved for the lab"),
        ("baseline: plain\nquick: {axes: {size: [1]}}", "quick.axes: 'size' is none of"),
        (
            "baseline: plain\ngoals: [{goal: g, variant: plian, figures: [p50], limit: 1}]",
            "goals.g: 'plian' is none of plain, other",
        ),
        (
            "baseline: plain\ngoals: [{goal: g, variant: other, beside: [plain], figures: [p50], limit: 0}]",
            "goals.g.limit: 0 is not a valid limit",
        ),
    ] {
        let lab = Lab::new(&sleeper("0.02").replace("baseline: plain", wrong));
        let said = lab.is_not_begun(&[]);
        assert!(said.contains(why), "{said}");
    }
}

/// A missing feature of the machine is no failure, but is noted.
#[test]
fn a_variant_that_needs_what_is_not_there_is_left_out_with_a_note() {
    let needs =
        "needs: [{run: [\"true\"], otherwise: truth}, {run: [no-such-program], otherwise: there is no such program}]";
    let lab = Lab::new(&scenario("command: [sleep, 0.02]", "", needs));
    let done = lab.run(&["--rounds", "1", "--strict"]);
    assert!(done.status.success(), "{done:?}");
    let run = lab.result();
    assert_eq!(run.variants.iter().map(|each| each.name.as_str()).collect::<Vec<_>>(), ["plain", "plain (again)"]);
    assert!(run.notes.contains(&"other takes no part: there is no such program".into()), "{:?}", run.notes);
    let text = scenario("command: [sleep, 0.02]", "", needs).replace("baseline: plain", "baseline: other");
    let said = Lab::new(&text).is_not_begun(&[]);
    assert!(said.contains("the baseline, other, cannot be measured here: there is no such program"), "{said}");
}

/// Both limits are far from the measured values.
#[test]
fn goals_are_reached_or_missed() {
    let goal = |what: &str, limit: &str| format!("{{goal: {what}, variant: other, figures: [p50], {limit}}}");
    let goals = [goal("under a minute", "limit: 60"), goal("as quick", "beside: [plain], limit: 1.1")].join(", ");
    let lab = Lab::new(&(sleeper("0.08") + &format!("goals: [{goals}]\n")));
    let done = lab.run(&["--rounds", "6"]);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("\nGoal reached in 1 of 1 comparison: under a minute.\n"), "{said}");
    assert!(said.contains("\nGoal missed in 1 of 1 comparison: as quick (missed: p50 beside plain: "), "{said}");
}

#[test]
fn a_name_that_nothing_has_is_told_with_those_that_are_there() {
    let said = Lab::new(&scenario("command: [sleep, '${tmie}']", "", "")).is_not_begun(&[]);
    assert!(said.contains("'tmie' is not defined; these are: ") && said.contains("time"), "{said}");
}

#[test]
fn what_processes_use_is_theirs_and_what_is_in_the_background_is_nobodys() {
    let burn = "'timeout 20 sh -c \"while :; do :; done\"'";
    let servers = format!("burner: {{run: [sh, -c, {burn}]}}\n  noise: {{run: [sh, -c, {burn}], background: true}}");
    let lab =
        Lab::new(&scenario("command: [sleep, 0.5]", &servers, "").replace("design: {", "design: {restart: trial, "));
    assert!(lab.run(&["--rounds", "1"]).status.success());
    let run = lab.result();
    let usage = &run.cells[0].trials[0].usage;
    let names: Vec<&str> = usage.processes.keys().map(String::as_str).collect();
    assert_eq!(names, ["burner", "load"]);
    // Of half a second; a busy machine gives the burning process only a small part.
    assert!(usage.processes["burner"].cpu() > 0.02, "{usage:?}");
    assert!(usage.processes["load"].cpu() < 0.02, "{usage:?}");
}

#[test]
fn ctrl_c_ends_a_run_and_keeps_what_was_measured() {
    let lab = Lab::new(&sleeper("0.02"));
    let running = lab.start(&["--rounds", "1000"]);
    lab.wait_for_rounds(2);
    running.signal("INT");
    let done = running.wait();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(lab.result().ended, Ended::Interrupted);
    lab.assert_nothing_is_left();
}

/// Neither process can handle SIGKILL, but the kernel ends what they have started.
#[test]
fn a_killed_run_leaves_no_process_and_the_next_one_sweeps() {
    let server = "server: {run: [sleep, 4711]}";
    let text = scenario("command: [sleep, 0.02]", server, "").replace("design: {", "design: {restart: never, ");
    let lab = Lab::new(&text);
    let running = lab.start(&["--rounds", "1000"]);
    running::until("three set-ups stand", || running::processes("sleep 4711").len() == 3);
    let pid = running.pid();
    running::assert_private(&running::leftovers(pid)[0]);
    running.signal("KILL");
    running.wait();
    running::until("all processes have ended", || running::processes("sleep 4711").is_empty());
    assert!(lab.run(&["--rounds", "1"]).status.success());
    assert!(running::leftovers(pid).iter().all(|path| !path.exists()), "the next run has swept");
}
