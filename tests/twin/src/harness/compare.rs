//! Compares two traces, line by line.

use std::collections::{BTreeMap, BTreeSet};

use super::modes::Mode;
use super::open;
use super::rules::{self, Context};
use super::run::Run;
use crate::program::Step;
use crate::trace::Line;

/// Identifies a line of a trace: the step, the actor, and whether the line has the result of a call that had blocked.
pub type Key = (usize, u8, bool);

pub struct Difference {
    pub key: Key,
    pub plain: String,
    pub other: String,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No rule allows it.
    Fault,
    /// The same events of an epoll set, in another order.
    Order,
    /// The rule of this name allows it.
    Known(&'static str),
    /// A known fault that is not fixed yet. Nothing after it is compared.
    Open(&'static str),
}

#[derive(Default)]
pub struct Comparison {
    /// In the order of the trace.
    pub differences: Vec<Difference>,
    pub compared: usize,
    /// Number of lines in which runs on the kernel differ.
    pub undetermined: usize,
}

impl Comparison {
    pub fn first(&self, kind: impl Fn(Kind) -> bool) -> Option<&Difference> {
        self.differences.iter().find(|d| kind(d.kind))
    }
}

fn key(line: &Line) -> Key {
    (line.step, line.at, line.after.is_some())
}

fn by_key(lines: &[Line]) -> BTreeMap<Key, &Line> {
    lines.iter().map(|line| (key(line), line)).collect()
}

/// Whether two lines have the same content. Durations do not count.
pub fn says_the_same(a: &Line, b: &Line) -> bool {
    let timeless = |line: &Line| Line { ms: 0, ..line.clone() };
    timeless(a) == timeless(b)
}

fn same_events_in_another_order(a: &Line, b: &Line) -> bool {
    let sorted = |line: &Line| {
        let mut line = Line { ms: 0, ..line.clone() };
        line.events.sort();
        line
    };
    sorted(a) == sorted(b)
}

/// Lines that are not the same in all runs on the kernel.
pub fn undetermined(runs: &[&[Line]]) -> BTreeSet<Key> {
    let maps: Vec<_> = runs.iter().map(|lines| by_key(lines)).collect();
    let keys: BTreeSet<Key> = maps.iter().flat_map(|map| map.keys().copied()).collect();
    let steady = |key: &Key| {
        let first = maps[0].get(key);
        maps.iter().all(|map| match (first, map.get(key)) {
            (Some(a), Some(b)) => says_the_same(a, b),
            _ => false,
        })
    };
    keys.into_iter().filter(|key| !steady(key)).collect()
}

/// `run`: the run with Sidestep.
pub fn compare(steps: &[Step], mode: Mode, plain: &[Line], run: &Run, unsteady: &BTreeSet<Key>) -> Comparison {
    let (plain, other) = (by_key(plain), by_key(&run.lines));
    let keys: BTreeSet<Key> = plain.keys().chain(other.keys()).copied().collect();
    let mut it = Comparison::default();
    let missing = Line::default();
    for key in keys {
        if unsteady.contains(&key) {
            it.undetermined += 1;
            continue;
        }
        it.compared += 1;
        let shown = |line: Option<&&Line>| line.map_or("(nothing)".into(), |line| show(line));
        let kind = match (plain.get(&key), other.get(&key)) {
            (Some(a), Some(b)) if says_the_same(a, b) => continue,
            (Some(a), Some(b)) if same_events_in_another_order(a, b) => Kind::Order,
            (plain, line) => {
                let (plain, line) = (plain.copied().unwrap_or(&missing), line.copied().unwrap_or(&missing));
                kind(&Context { plain, line, mode, steps, returned: run.report.returned > 0 })
            }
        };
        it.differences.push(Difference { key, plain: shown(plain.get(&key)), other: shown(other.get(&key)), kind });
    }
    it.differences.sort_by_key(|d| {
        let after = [&plain, &other].iter().filter_map(|map| map.get(&d.key)?.after).min();
        (after.unwrap_or(d.key.0), d.key)
    });
    if let Some(last) = it.differences.iter().position(|d| ends(d.kind)) {
        it.differences.truncate(last + 1);
    }
    it
}

/// Whether nothing after such a difference is compared.
fn ends(kind: Kind) -> bool {
    match kind {
        Kind::Open(_) => true,
        Kind::Known(name) => rules::RULES.iter().any(|rule| rule.name == name && rule.ends),
        Kind::Fault | Kind::Order => false,
    }
}

fn kind(context: &Context) -> Kind {
    match (rules::allows(context), open::fault(context)) {
        (Some(rule), _) => Kind::Known(rule.name),
        (_, Some(open)) => Kind::Open(open.name),
        _ => Kind::Fault,
    }
}

fn show(line: &Line) -> String {
    match line.after {
        None => line.to_string(),
        Some(after) => format!("{line} (after step {after})"),
    }
}
