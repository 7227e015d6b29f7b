//! A made-up run, always the same: several variants, one axis, and everything that can go wrong.
#![allow(dead_code)] // Each test uses a part of it.

use indexmap::IndexMap;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use sidestep_lab::load::{Latencies, Outcome};
use sidestep_lab::result::{
    About, Cell, Disturbance, Ended, FORMAT, Figure, Goal, Machine, ProcessUsage, Program, Published, PublishedFigure,
    Run, Trial, Usage, Variant,
};
use std::sync::LazyLock;

/// No page may show this as anything but text.
pub const HOSTILE: &str = "<script>console.error('escaped?')</script>&\"'";

/// Name, description, and the speed relative to the baseline.
const VARIANTS: [(&str, &str, f64); 5] = [
    ("plain", "kernel TCP", 1.0),
    ("sidestep", "Sidestep, preloaded", 1.8),
    ("sidecar-redirected", "iptables and a proxy", 0.45),
    (HOSTILE, "a name that wants to be more", 1.004),
    ("control", "the baseline once more", 1.0),
];
const CONNECTIONS: [u32; 4] = [1, 8, 64, 256];
pub const ROUNDS: u32 = 12;

/// The complete run, made only once, since that takes a while.
pub fn run() -> Run {
    static RUN: LazyLock<Run> = LazyLock::new(made);
    RUN.clone()
}

fn made() -> Run {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let cells = CONNECTIONS.iter().map(|&connections| cell(&mut rng, connections)).collect();
    Run {
        format: FORMAT,
        version: "0.3.0".into(),
        command: ["sidestep-lab", "run", "scenarios/http.yaml", "--seed", "7"].map(String::from).into(),
        begun: "2026-11-20T10:00:00Z".parse().expect("a time"),
        seconds: 1452.0,
        ended: Ended::TimeLimit,
        seed: 7,
        machine: machine(),
        programs: programs(),
        scenario: about(),
        variants: VARIANTS.iter().map(variant).collect(),
        cells,
        carried: IndexMap::new(),
        notes: vec!["bypass4netns was left out: it needs a user namespace".into(), HOSTILE.into()],
        wrong: Vec::new(),
    }
}

/// The smallest possible run: no axis, no control, one variant besides the baseline, few rounds.
pub fn small() -> Run {
    let mut run = run();
    run.variants.truncate(2);
    run.scenario.published = None;
    run.scenario.judged = vec![Figure::P50];
    run.notes.clear();
    run.ended = Ended::Done;
    run.cells.truncate(1);
    let cell = &mut run.cells[0];
    cell.values.clear();
    cell.trials.retain(|trial| trial.round < 3 && run.variants.iter().any(|variant| variant.name == trial.variant));
    run
}

/// A very large run: ten variants with long names, of which one is far slower, and a second axis.
pub fn crowded() -> Run {
    let mut run = run();
    run.scenario.published = None;
    for number in 0..5 {
        let name = format!("sidecar-of-mesh-number-{number}-with-everything-switched-on-that-it-has");
        run.variants.insert(3, Variant { name: name.clone(), ..run.variants[1].clone() });
        run.cells.iter_mut().for_each(|cell| add_copies(cell, &name));
        scaled(&mut run, &name, [1.0, 0.9, 0.5, 0.01, 30.0][number]);
    }
    run.cells.truncate(2);
    run.cells.iter_mut().for_each(|cell| cell.trials.retain(|trial| trial.round < 6));
    let mut large = run.cells.clone();
    run.cells.iter_mut().for_each(|cell| drop(cell.values.insert("body".into(), "1 KiB".into())));
    large.iter_mut().for_each(|cell| drop(cell.values.insert("body".into(), "64 KiB".into())));
    run.cells.extend(large);
    run
}

fn add_copies(cell: &mut Cell, name: &str) {
    let own = cell.trials.iter().filter(|trial| trial.variant == "sidestep");
    let copies: Vec<Trial> = own.map(|trial| Trial { variant: name.into(), ..trial.clone() }).collect();
    cell.trials.extend(copies);
}

/// Multiplies a variant's figures by a factor.
pub fn scaled(run: &mut Run, variant: &str, factor: f64) {
    let trials = run.cells.iter_mut().flat_map(|cell| &mut cell.trials).filter(|trial| trial.variant == variant);
    for outcome in trials.filter_map(|trial| trial.outcome.as_mut()) {
        outcome.requests = (outcome.requests as f64 * factor) as u64;
    }
}

fn variant(&(name, about, _): &(&str, &str, f64)) -> Variant {
    Variant { name: name.into(), about: about.into(), baseline: name == "plain", control: name == "control" }
}

fn cell(rng: &mut ChaCha8Rng, connections: u32) -> Cell {
    let mut trials = Vec::new();
    for round in 0..ROUNDS {
        for (name, _, speed) in VARIANTS {
            trials.extend(attempts(rng, round, name, speed, connections));
        }
    }
    let values = IndexMap::from([("connections".to_owned(), connections.to_string())]);
    Cell { values, variants: Vec::new(), trials, profiles: Vec::new() }
}

/// A trial, or one that was disturbed and its repetition; once in each cell a failed one.
fn attempts(rng: &mut ChaCha8Rng, round: u32, name: &str, speed: f64, connections: u32) -> Vec<Trial> {
    let good = trial(rng, round, name, speed, connections);
    let disturbance = Disturbance { steal: 0.08, foreign: 0.11 };
    match (round, name) {
        (4, "sidestep") => {
            let mut disturbed = trial(rng, round, name, speed * 0.8, connections);
            (disturbed.disturbed, disturbed.repeated) = (Some(disturbance), true);
            vec![disturbed, good]
        }
        (6, "plain") => vec![Trial { disturbed: Some(disturbance), ..good }],
        (7, "sidecar-redirected") => {
            let failure = Some("wrk exited with 1: unable to connect to 127.0.0.1:8080".into());
            vec![Trial { outcome: None, failure, ..good }]
        }
        _ => vec![good],
    }
}

fn trial(rng: &mut ChaCha8Rng, round: u32, name: &str, speed: f64, connections: u32) -> Trial {
    // The machine's state of the moment is common to all variants of a round.
    let mood = LogNormal::new(0.0, 0.01).expect("a distribution").sample(&mut ChaCha8Rng::seed_from_u64(round.into()));
    let each = LogNormal::new(0.0, 0.012).expect("a distribution").sample(rng);
    let speed = speed * mood * each;
    let rate = 30_000.0 * speed * f64::from(connections).powf(0.25);
    let outcome = outcome(rng, rate, f64::from(connections));
    let (usage, requests) = (usage(&outcome, speed, name), outcome.requests);
    let moved = moved(name, requests);
    let (at, variant) = (f64::from(round) * 30.0, name.into());
    Trial {
        variant,
        round,
        at,
        outcome: Some(outcome),
        failure: None,
        usage,
        moved,
        noted: Vec::new(),
        disturbed: None,
        repeated: false,
    }
}

/// Bytes that did not go by the kernel; empty for the others.
fn moved(name: &str, requests: u64) -> IndexMap<String, u64> {
    let way = match name {
        "sidestep" => Some("by ring"),
        _ => None,
    };
    way.map(|way| (way.to_owned(), requests * 1200)).into_iter().collect()
}

fn outcome(rng: &mut ChaCha8Rng, rate: f64, connections: f64) -> Outcome {
    let mut latency = Latencies::new();
    let times = LogNormal::new((connections / rate * 0.9).ln(), 0.35).expect("a distribution");
    for _ in 0..1500 {
        let slow = if rng.next_u32().is_multiple_of(400) { 6.0 } else { 1.0 };
        latency.record((times.sample(rng) * slow * 1e9) as u64, 20);
    }
    let requests = (rate * 5.0) as u64;
    Outcome { requests, errors: 0, seconds: 5.0, bytes: Some(requests * 1200), latency: Some(latency) }
}

fn usage(outcome: &Outcome, speed: f64, name: &str) -> Usage {
    let total = outcome.requests as f64 * 25e-6 / speed;
    let part = |share: f64, user: f64| ProcessUsage {
        user: total * share * user,
        system: total * share * (1.0 - user),
        memory: (20e6 * (1.0 + share)) as u64,
    };
    let mut processes = IndexMap::from([("load".to_owned(), part(0.4, 0.35)), ("nginx".to_owned(), part(0.5, 0.4))]);
    if name == "sidecar-redirected" {
        processes.insert("envoy".into(), part(0.6, 0.6));
    }
    Usage {
        seconds: 5.0,
        machine_cpu: total * 1.3,
        softirq: total * 0.12,
        highest_cpu: 2.6 / speed.max(1.0),
        switches: outcome.requests * 2,
        calls: Some((outcome.requests as f64 * 4.0 / speed) as u64),
        steal: 0.01,
        foreign: Some(0.02),
        processes,
    }
}

fn machine() -> Machine {
    Machine {
        kernel: "6.1.0-28-amd64".into(),
        cpu: "AMD EPYC 7763 64-Core Processor".into(),
        cores: 4,
        memory: 16_000_000_000,
        hypervisor: Some("kvm".into()),
        governor: None,
        clocksource: "kvm-clock".into(),
        distribution: "Debian GNU/Linux 12 (bookworm)".into(),
    }
}

fn programs() -> IndexMap<String, Program> {
    let program = |path: &str, version: Option<&str>| Program { path: path.into(), version: version.map(Into::into) };
    IndexMap::from([
        ("load".to_owned(), program("/usr/bin/wrk", Some("wrk 4.1.0"))),
        ("nginx".to_owned(), program("/usr/sbin/nginx", Some("nginx version: nginx/1.22.1"))),
        ("envoy".to_owned(), program("/usr/local/bin/envoy", None)),
    ])
}

fn about() -> About {
    About {
        name: "HTTP through a sidecar".into(),
        about: "Requests of 1 kB from wrk to nginx, as they are and on short cuts.".into(),
        text: format!("name: HTTP through a sidecar\nprocesses:\n  nginx: {HOSTILE}\n"),
        judged: vec![Figure::Rate, Figure::P50, Figure::P99, Figure::Cpu],
        precision: 0.05,
        confidence: 0.95,
        goals: goals(),
        published: Some(published()),
    }
}

/// A goal that is reached, one that is missed, and one without a comparison.
fn goals() -> Vec<Goal> {
    let goal = |text: &str, variant: &str, beside: &str, limit: f64| Goal {
        goal: text.into(),
        variant: variant.into(),
        beside: vec![beside.into()],
        figures: vec![Figure::Rate, Figure::P50],
        limit,
        cells: IndexMap::new(),
    };
    let cells = IndexMap::from([("connections".to_owned(), vec!["64".to_owned()])]);
    vec![
        goal("half as quick again as the kernel", "sidestep", "plain", 1.0 / 1.5),
        goal("a sidecar costs nothing", "sidecar-redirected", "sidestep", 1.0),
        Goal {
            beside: Vec::new(),
            figures: vec![Figure::Rate],
            cells,
            ..goal("100,000 a second", "sidestep", "", 100e3)
        },
    ]
}

fn published() -> Published {
    Published {
        source: "A. Author, B. Author: How sidecars cost, 2023".into(),
        url: Some("https://example.org/paper?a=1&b=2".into()),
        setup: "two 32-core machines, Linux 5.10, Envoy 1.24".into(),
        figures: vec![
            figure("64 connections, requests/s", "64", "sidestep"),
            figure("1024 connections", "1024", "other"),
        ],
        differs: vec!["one machine, not two".into(), "nginx 1.22 for 1.20".into()],
    }
}

fn figure(what: &str, connections: &str, variant: &str) -> PublishedFigure {
    PublishedFigure {
        what: what.into(),
        baseline: "41 k/s".into(),
        improved: "70 k/s".into(),
        change: "+71 %".into(),
        cell: IndexMap::from([("connections".to_owned(), connections.to_owned())]),
        variant: Some(variant.into()),
        figure: Some(Figure::Rate),
    }
}
