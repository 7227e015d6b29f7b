//! Reports in all formats.

use crate::common;

use crate::common::HOSTILE;
use indexmap::IndexMap;
use sidestep_lab::report::{Judgement, markdown, page, section, table};
use sidestep_lab::result::{Cell, Figure, Run};

/// The first line with the variant after that heading.
fn line<'a>(text: &'a str, heading: &str, variant: &str) -> &'a str {
    let after = text.split_once(heading).unwrap_or_else(|| panic!("no {heading} in {text}")).1;
    after.lines().find(|line| line.contains(variant)).unwrap_or_else(|| panic!("no {variant} in {after}"))
}

#[test]
fn the_table_tells_medians_changes_and_verdicts() {
    let text = table(&common::run());
    assert!(text.lines().next().expect("a line").ends_with(", beside plain"), "{text}");
    let better = line(&text, "connections 64\n", "sidestep");
    assert!(better.starts_with("requests/s ") && better.contains("84.7 k/s   151 k/s"), "{better}");
    assert!(better.contains(" +79.") && better.ends_with("better"), "{better}");
    assert!(line(&text, "connections 64\n", "redirected").ends_with("worse"), "{text}");
    assert!(text.contains("\nThe control, the baseline measured twice, was called different in "), "{text}");
    assert!(text.contains(" of 16 comparisons (by chance: 0.8)"), "{text}");
    assert!(text.contains("sidestep is better than plain in 16 of 16 comparisons, worse in none.\n"), "{text}");
    assert!(text.contains("\nNote: bypass4netns was left out"), "{text}");
    let wide = text.lines().filter(|line| !line.contains(". ") && line.contains("  ")).map(|line| line.chars().count());
    assert!(wide.max().expect("lines") <= 100, "{text}");
}

/// The same trials compared with another variant: changes have the opposite sign, and there is no control.
#[test]
fn another_variant_can_be_the_baseline() {
    let run = common::run().beside("sidestep").expect("there is such a variant");
    let text = table(&run);
    assert!(text.lines().next().expect("a line").ends_with(", beside sidestep"), "{text}");
    let plain = line(&text, "connections 64\n", "plain");
    assert!(plain.contains("\u{2212}4") && plain.ends_with("worse"), "{plain}");
    assert!(text.contains("No control took part"), "{text}");
    let why = common::run().beside("sidestpe").expect_err("there is none");
    assert!(why.to_string().starts_with("--baseline: 'sidestpe' is none of plain, sidestep, "), "{why}");
}

#[test]
fn texts_are_the_same_each_time() {
    let (one, other) = (common::run(), common::run());
    assert_eq!(table(&one), table(&other));
    assert_eq!(markdown(&one), markdown(&other));
    assert!(page(&one) == page(&other), "the pages differ");
}

#[test]
fn few_rounds_are_no_verdict() {
    let text = table(&common::small());
    assert!(text.contains("sidestep had too few rounds to be compared with plain."), "{text}");
    assert!(text.contains("No control took part"), "{text}");
    assert!(text.lines().any(|line| line.contains("−4") && line.ends_with("too few rounds")), "{text}");
}

/// A control that differs causes a warning.
#[test]
fn a_control_that_differs_is_not_passed_over() {
    let mut run = common::run();
    common::scaled(&mut run, "control", 1.3);
    let text = table(&run);
    assert!(text.contains("was called different in 8 of 16 comparisons (by chance: 0.8)"), "{text}");
    assert!(text.contains("That is more than chance"), "{text}");
    assert!(page(&run).contains(r#"<p class="warning">"#));
}

/// The whole interval is on one side of the limit, or on the other, or the limit is inside.
#[test]
fn goals_are_told_with_what_misses_them() {
    let run = common::run();
    let said = table(&run);
    assert!(said.contains("\nGoal reached in 8 of 8 comparisons: half as quick again as the kernel.\n"), "{said}");
    assert!(
        said.contains("\nGoal missed in 8 of 8 comparisons: a sidecar costs nothing (missed: requests/s, "),
        "{said}"
    );
    assert!(said.contains("\nGoal reached in 1 of 1 comparison: 100,000 a second.\n"), "{said}");
    assert!(markdown(&run).contains("\nGoal reached in 8 of 8 comparisons: half as quick again as the kernel.\n"));
    let json = serde_json::to_value(Judgement::of(&run)).expect("JSON");
    let standing: Vec<_> = json["goals"].as_array().expect("goals").iter().map(|goal| &goal["standing"]).collect();
    assert_eq!(standing, ["reached", "missed", "reached"]);
    let mut without = common::run();
    without.variants.retain(|variant| variant.name != "sidestep");
    assert!(table(&without).contains("\nGoal not measured: half as quick again as the kernel.\n"));
    let few = table(&common::small());
    assert!(few.contains("\nGoal open in 2 of 2 comparisons: half as quick again"), "{few}");
}

#[test]
fn markdown_is_a_section() {
    let text = markdown(&common::run());
    assert!(text.starts_with("## HTTP through a sidecar\n\nRequests of 1 kB"), "{text}");
    assert!(
        text.contains("`sidestep-lab run scenarios/http.yaml --seed 7` ran for 24 min 12 s, its time limit, on 4 cores of AMD EPYC"),
        "{text}"
    );
    assert!(text.contains("\n| connections | variant | requests/s | p50 | p99 |\n|---|---|---|---|---|\n"), "{text}");
    let row = line(&text, "\n| 1 | sidestep |", "|");
    assert!(row.starts_with(" 29.8 k/s → 53.5 k/s: **better**, +79.") && !text.contains("<script"), "{row} in {text}");
    assert!(text.contains("sidestep is better than plain in 16 of 16 comparisons, worse in none."), "{text}");
    assert!(markdown(&common::small()).contains("\n| p50 |\n|---|\n"));
}

/// The control has no row. If it differs by no more than chance, the report names the comparison.
#[test]
fn markdown_names_what_the_control_says() {
    let mut run = common::run();
    assert!(!markdown(&run).contains("| control |"));
    let cell = run.cells.iter_mut().find(|cell| cell.values["connections"] == "64").expect("the cell");
    for trial in cell.trials.iter_mut().filter(|trial| trial.variant == "control") {
        trial.outcome.iter_mut().for_each(|outcome| outcome.requests = outcome.requests * 13 / 10);
    }
    let text = markdown(&run);
    assert!(text.contains("connections 64, requests/s, +"), "{text}");
    common::scaled(&mut run, "control", 1.3);
    assert!(markdown(&run).contains("That is more than chance"));
}

#[test]
fn published_figures_stand_in_a_table_of_their_own() {
    let text = markdown(&common::run());
    let row = line(&text, "| what | published | here |", "64 connections");
    assert!(
        row.starts_with(
            "| 64 connections, requests/s | 41 k/s → 70 k/s: +71 % | sidestep, 84.7 k/s → 151 k/s: **better**"
        ),
        "{row}"
    );
    assert!(line(&text, "| what | published | here |", "1024 connections").ends_with("| not measured |"), "{text}");
}

#[test]
fn judgements_can_be_read_again() {
    let said = Judgement::of(&common::run());
    let text = said.text().expect("JSON");
    let again: Judgement = serde_json::from_str(&text).expect("a judgement");
    assert_eq!(again.text().expect("JSON"), text);
    assert_eq!(section(&again, None), section(&said, None));
    assert!(
        text.lines().filter(|line| line.contains(r#""figure":"#)).count() == said.lines.len(),
        "a line each: {text}"
    );
}

#[test]
fn names_are_nothing_but_text() {
    let page = page(&common::run());
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;console.error"));
    assert!(!page.contains(HOSTILE));
    let mut run = common::run();
    run.variants[1].name = "red\x1b[31m\nline".into();
    assert!(!table(&run).contains('\x1b'));
}

/// Besides the browser's judgement in `chromium.rs`: the page contains nothing that could load anything.
#[test]
fn the_page_stands_alone() {
    let page = page(&common::run());
    for loading in [" src=", "<link", "<script", "<iframe", "<object", "@import", "url(http", "url(//", "@font-face"] {
        assert!(!page.contains(loading), "{loading}");
    }
    assert!(page.contains(r#"http-equiv="Content-Security-Policy" content="default-src 'none'"#));
    let outside: Vec<_> = page.match_indices("http").map(|(at, _)| &page[at..at + 20]).collect();
    let known = |text: &&str| text.starts_with("http-equiv") || text.starts_with("https://example.org");
    let unknown: Vec<_> = outside.iter().filter(|text| !known(text) && !text.starts_with("http.yaml")).collect();
    assert_eq!(unknown, Vec::<&&str>::new(), "only the source of what was published is named");
}

#[test]
fn links_lead_to_the_web_only() {
    let mut run = common::run();
    let published = run.scenario.published.as_mut().expect("a published experiment");
    published.url = Some("javascript:alert(1)".into());
    assert!(!page(&run).contains("javascript:"));
}

#[test]
fn what_was_published_stands_beside_ours() {
    let page = page(&common::run());
    let part = page.split_once(r#"id="published""#).expect("the section").1;
    let part = part.split_once("</section>").expect("its end").0;
    for words in ["How sidecars cost, 2023", "Linux 5.10", "41 k/s", "+71 %", "151 k/s", "not measured", "one machine"]
    {
        assert!(part.contains(words), "{words} is not in {part}");
    }
}

/// A run that ended early still has a readable report.
#[test]
fn runs_with_nothing_in_them_are_reported() {
    for run in broken() {
        let texts = [page(&run), table(&run), markdown(&run)];
        assert!(texts.iter().all(|text| text.contains("HTTP through a sidecar") && !text.contains("NaN")));
    }
}

fn broken() -> [Run; 5] {
    let (mut failed, mut bytes, mut idle) = (common::small(), common::small(), common::small());
    failed.cells[0].trials.iter_mut().for_each(|trial| trial.outcome = None);
    for outcome in bytes.cells[0].trials.iter_mut().filter_map(|trial| trial.outcome.as_mut()) {
        (outcome.latency, outcome.requests) = (None, 0);
    }
    for outcome in idle.cells[0].trials.iter_mut().filter_map(|trial| trial.outcome.as_mut()) {
        (outcome.requests, outcome.seconds) = (0, 0.0);
    }
    idle.scenario.judged = Figure::ALL.into();
    bytes.scenario.judged = vec![Figure::Throughput, Figure::P50];
    let empty = Run {
        cells: vec![Cell { values: IndexMap::new(), variants: Vec::new(), trials: Vec::new(), profiles: Vec::new() }],
        ..common::small()
    };
    [failed, bytes, idle, Run { cells: Vec::new(), variants: Vec::new(), ..common::small() }, empty]
}

#[test]
fn who_has_no_figures_is_missing() {
    // In this run single trials fail, but other trials of the same variants succeed.
    let mut run = common::run();
    assert_eq!(run.missing(), [""; 0]);
    for trial in run.cells[1].trials.iter_mut().filter(|trial| trial.variant == "sidestep") {
        (trial.outcome, trial.failure) = (None, Some("it has ended".into()));
    }
    assert_eq!(run.missing(), ["sidestep, connections 8: it has ended"]);
}
