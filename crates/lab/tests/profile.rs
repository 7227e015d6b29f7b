//! `--profile`: where the CPU time of a set-up's processes goes. Needs root, as sampling does.

use crate::running::{Lab, scenario};
use sidestep_lab::report::{markdown, page};

/// One process that only runs its own code, and one that is only in the kernel.
fn servers() -> String {
    let burner = "'exec timeout 60 sh -c \"while :; do :; done\"'";
    format!("burner: {{run: [sh, -c, {burner}]}}\n  reader: {{run: [dd, if=/dev/zero, of=/dev/null, bs=1M]}}")
}

#[test]
fn each_variant_is_sampled_once_and_by_program() {
    // One set-up at a time, since each keeps two processors busy.
    let text = scenario("command: [sleep, 1]", &servers(), "").replace("design: {", "design: {restart: trial, ");
    let lab = Lab::new(&text);
    let done = lab.run(&["--rounds", "1", "--profile"]);
    assert!(done.status.success(), "{done:?}");
    let run = lab.result();
    let profiles = &run.cells[0].profiles;
    let names: Vec<&str> = profiles.iter().map(|each| each.variant.as_str()).collect();
    assert_eq!(names, ["plain", "other"], "the control is none of them: {:?}", run.notes);
    assert_eq!(run.cells[0].trials.iter().filter(|trial| trial.counts()).count(), 3, "what is sampled is no trial");
    for profile in profiles {
        let (burner, reader) = (&profile.processes["burner"], &profile.processes["reader"]);
        assert!(burner.samples > 20 && reader.samples > 20, "{profile:?}");
        assert!(burner.own + burner.libraries.values().sum::<u64>() > burner.samples / 2, "{profile:?}");
        assert!(reader.kernel > reader.samples / 2, "{profile:?}");
    }
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("OWN CODE") && said.lines().any(|line| line.contains("burner")), "{said}");
    let text = markdown(&run);
    let line = text.lines().find(|line| line.contains("| plain | reader | ")).expect("a line");
    assert_eq!(
        line.matches('|').count(),
        text.lines().find(|line| line.contains("own code")).expect("").matches('|').count()
    );
    assert!(page(&run).contains(r#"<section id="profile">"#));
    lab.assert_nothing_is_left();
}

#[test]
fn without_the_option_nothing_is_said_of_it() {
    let lab = Lab::new(&scenario("command: [sleep, 1]", "idle: {run: [sleep, 60]}", ""));
    assert!(lab.run(&["--rounds", "1"]).status.success());
    let run = lab.result();
    assert!(run.cells[0].profiles.is_empty());
    assert!(!page(&run).contains(r#"id="profile""#) && !markdown(&run).contains("own code"));
}
