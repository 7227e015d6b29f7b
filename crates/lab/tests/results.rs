//! `docs/results`: the page, and rows in README.md and docs/PERFORMANCE.md, agree with the judgements in that directory.
//! `UPDATE=1 cargo test -p sidestep-lab --test all results`, which `make results` calls, writes them.

use indexmap::IndexMap;
use sidestep_lab::report::{Judgement, comparison, section};
use sidestep_lab::result::Figure;
use sidestep_lab::scenario::{parse, shipped};
use std::path::PathBuf;

const HEADING: &str = "\
# Results

What the lab has measured, beside what was published. `make results` makes this page from the JSON files in this directory; `make
results ARGS=\"kmap\"` measures one scenario again. The machine is shared with other work: compare ratios only, and read each with its
interval.

A row is a variant in one cell: medians of the baseline and of the variant by the first figure; and by each figure the verdict
and the change with its 95 % interval. [lab.md](../lab.md) explains the terms. The sentences below the tables count all figures; the
JSON files have them.
";

/// Marks around generated rows in a document.
const MARKS: [&str; 2] = ["<!-- results: written by make results -->\n", "<!-- end of results -->\n"];

/// A generated row.
struct Headline {
    what: &'static str,
    scenario: &'static str,
    cell: &'static [(&'static str, &'static str)],
    figure: Figure,
    variant: &'static str,
}

const HEADLINES: &[Headline] = &[
    row("wrk → nginx, 1 connection", "demo", &[("path", "nginx"), ("connections", "1")], Figure::Rate, "rings"),
    row("wrk → nginx, 64 connections", "demo", &[("path", "nginx"), ("connections", "64")], Figure::Rate, "rings"),
    row("wrk → Envoy → nginx, 1", "demo", &[("path", "envoy-http"), ("connections", "1")], Figure::Rate, "rings"),
    row("wrk → Envoy → nginx, 64", "demo", &[("path", "envoy-http"), ("connections", "64")], Figure::Rate, "rings"),
    row("redis GET of 1 KiB, 200", "smc-redis", &[("command", "get")], Figure::Rate, "rings"),
    row("sockperf, 14 bytes there and back", "smc-sockperf", &[("test", "ping-pong")], Figure::P50, "rings"),
    row("a stream of 64,000 bytes each", "smc-sockperf", &[("test", "throughput")], Figure::Throughput, "rings"),
    row(
        "new connections to one of 5,000 Services, beside kube-proxy (iptables)",
        "socket-ebpf",
        &[("connection", "close"), ("services", "5000")],
        Figure::Rate,
        "sidestep",
    ),
    row("client → its Envoy → the server's → nginx, 1", "kube", &[("connections", "1")], Figure::Rate, "sidestep"),
    row("the same, 16 connections", "kube", &[("connections", "16")], Figure::Rate, "sidestep"),
    row("the same, 64", "kube", &[("connections", "64")], Figure::Rate, "sidestep"),
    row("the same, 256", "kube", &[("connections", "256")], Figure::Rate, "sidestep"),
    row("the same, 64", "kube", &[("connections", "64")], Figure::Cpu, "sidestep"),
    row("the same, 64, sidecars bypassed", "kube", &[("connections", "64")], Figure::Rate, "bypass"),
];

/// Rows of these are left out until they have been measured.
const MAY_BE_MISSING: &[&str] = &["kube"];

const MORE: &[Headline] = &[
    row("nginx, 1000 connections", "smc-nginx", &[("connections", "1000")], Figure::Rate, "rings"),
    row("redis SET of 1 KiB, 200 connections", "smc-redis", &[("command", "set")], Figure::Rate, "rings"),
    row(
        "small messages one way, spinning",
        "socksdirect",
        &[("test", "throughput"), ("bytes", "14")],
        Figure::Rate,
        "rings-spin",
    ),
    row(
        "a file of 700 B from nginx",
        "kmap",
        &[("size", "700"), ("buffers", "65536"), ("beside", "nothing")],
        Figure::P50,
        "rings",
    ),
    row(
        "a file of 10 MB from nginx",
        "kmap",
        &[("size", "10000000"), ("buffers", "65536"), ("beside", "nothing")],
        Figure::P50,
        "rings",
    ),
    row("Envoy, 1 connection", "sidecar", &[("connections", "1"), ("machine", "idle")], Figure::P90, "rings"),
    row(
        "Envoy, 64 connections, idle machine",
        "sidecar",
        &[("connections", "64"), ("machine", "idle")],
        Figure::P90,
        "rings",
    ),
    row(
        "Envoy, 64 connections, busy machine",
        "sidecar",
        &[("connections", "64"), ("machine", "busy")],
        Figure::P90,
        "rings",
    ),
];

const fn row(
    what: &'static str,
    scenario: &'static str,
    cell: &'static [(&'static str, &'static str)],
    figure: Figure,
    variant: &'static str,
) -> Headline {
    Headline { what, scenario, cell, figure, variant }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn file(name: &str) -> String {
    format!("docs/results/{name}.json")
}

/// The judgements in the directory, in the order of the scenarios.
fn judgements() -> IndexMap<&'static str, Judgement> {
    let there = shipped().iter().map(|(name, _)| *name).filter(|name| path(&file(name)).exists());
    there
        .map(|name| (name, serde_json::from_str(&text(&file(name))).unwrap_or_else(|why| panic!("{name}: {why}"))))
        .collect()
}

/// Published figures are taken from the present scenario, not from the one at the time of the run.
fn page() -> String {
    let mut page = HEADING.to_string();
    for (name, judgement) in judgements() {
        let (_, scenario) = shipped().iter().find(|(each, _)| *each == name).expect("it is shipped");
        let scenario = parse(scenario).unwrap_or_else(|why| panic!("{name}: {why}"));
        page += &format!("\n{}", section(&judgement, scenario.published.as_ref()));
    }
    page
}

fn table(headlines: &[Headline]) -> String {
    let judgements = judgements();
    let is_there =
        |each: &&Headline| judgements.contains_key(each.scenario) || !MAY_BE_MISSING.contains(&each.scenario);
    let rows = headlines.iter().filter(is_there).map(|each| {
        let judgement =
            judgements.get(each.scenario).unwrap_or_else(|| panic!("docs/results has no {}", each.scenario));
        let cell = each.cell.iter().map(|(axis, value)| (axis.to_string(), value.to_string())).collect();
        let said = comparison(judgement, &cell, each.figure, each.variant);
        let said = said.unwrap_or_else(|| panic!("{} has nothing of {}", each.scenario, each.what));
        format!("| {} | {} | {} |\n", each.what, each.figure.title(), said.join(" | "))
    });
    let heading = "| load | figure | kernel | Sidestep | change (95 % interval) |\n|---|---|--:|--:|---|\n";
    heading.to_string() + &rows.collect::<String>()
}

/// The document with its rows generated anew.
fn filled(name: &str, headlines: &[Headline]) -> String {
    let document = text(name);
    let (before, rest) =
        document.split_once(MARKS[0]).unwrap_or_else(|| panic!("{name} does not say where rows begin"));
    let (_, after) = rest.split_once(MARKS[1]).unwrap_or_else(|| panic!("{name} does not say where rows end"));
    [before, MARKS[0], &table(headlines), MARKS[1], after].concat()
}

fn is(name: &str, made: &str) {
    if std::env::var_os("UPDATE").is_some() && text(name) != made {
        std::fs::write(path(name), made).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
    let there = text(name);
    let differing = there.lines().zip(made.lines()).find(|(one, other)| one != other);
    assert!(there == made, "{name} is not what docs/results says (UPDATE=1 writes it): {differing:#?}");
}

#[test]
fn the_page_is_made_from_the_judgements() {
    is("docs/results/README.md", &page());
}

#[test]
fn documents_have_the_figures_of_the_page() {
    is("README.md", &filled("README.md", HEADLINES));
    is("docs/PERFORMANCE.md", &filled("docs/PERFORMANCE.md", MORE));
}

/// Reading and writing a judgement does not change it.
#[test]
fn judgements_are_kept_whole() {
    for (name, judgement) in judgements() {
        is(&file(name), &(judgement.text().expect("JSON") + "\n"));
    }
}

/// Every verdict is that of its interval.
#[test]
fn verdicts_follow_from_intervals() {
    for (name, judgement) in judgements() {
        for line in &judgement.lines {
            let Some((beside, interval)) = line.beside.and_then(|beside| Some((beside, beside.interval?))) else {
                continue;
            };
            let same = interval.low <= 1.0 && 1.0 <= interval.high;
            let word = format!("{:?}", beside.verdict);
            assert_eq!(same, word == "NoDifference", "{name}: {line:?}");
            assert!(interval.low <= beside.ratio && beside.ratio <= interval.high, "{name}: {line:?}");
        }
    }
}
