//! What the stack must carry of each case between two hosts, if it is at both ends.

use super::job::Outcome;
use super::modes::Mode;
use super::report::Report;
use crate::case::Ring;

/// One case in each line: its name, and then one of
///
/// - a number: of bytes, sent plus received, that must go by the stack;
/// - `may REASON`: whether any goes by the stack is left open;
/// - `never REASON`: none may go by the stack;
/// - `out REASON`: the case does not run between two hosts.
const NOTED: &str = include_str!("../../by_stack.txt");
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/by_stack.txt");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    /// Bytes by the stack: at least so many, or as it says.
    Runs { ring: Ring, least: u64 },
    /// Does not run, for this reason.
    Out(&'static str),
}

/// Bytes: two connections of one warm-up each have more by the stack, once it has taken them.
const ENOUGH: u64 = 2000;

/// For a case without a line, which so fails unless lines are to be noted.
const NOT_NOTED: Noted = Noted::Runs { ring: Ring::Must, least: u64::MAX };

pub fn of(name: &str) -> Noted {
    lines().find(|(case, _)| *case == name).map_or(NOT_NOTED, |(_, noted)| noted)
}

fn lines() -> impl Iterator<Item = (&'static str, Noted)> {
    NOTED.lines().filter_map(|line| {
        let (name, what) = line.split_once(' ')?;
        Some((name, parse(what)?))
    })
}

fn parse(what: &'static str) -> Option<Noted> {
    if let Ok(least) = what.parse() {
        return Some(Noted::Runs { ring: Ring::Must, least });
    }
    let (word, reason) = what.split_once(' ')?;
    match word {
        "may" => Some(Noted::Runs { ring: Ring::May(reason), least: 0 }),
        "never" => Some(Noted::Runs { ring: Ring::Never(reason), least: 0 }),
        "out" => Some(Noted::Out(reason)),
        _ => None,
    }
}

/// Adds lines for cases that have none: a quarter of the measured bytes, and no more than a part of the warm-up. When the stack takes a
/// connection, and whether it keeps one that carries bulk, depends on the machine. A case that was below its line gets a new one.
pub fn note(outcomes: &[Outcome]) -> Result<(), String> {
    let mut all: std::collections::BTreeMap<String, String> = NOTED
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, what)| (name.to_owned(), what.to_owned()))
        .collect();
    for outcome in outcomes.iter().filter(|o| o.mode == Mode::HostsBoth && o.failure.is_none()) {
        let shown = outcome.report.as_ref().map_or(0, |report| report.ring);
        match of(outcome.case.name) {
            Noted::Runs { ring: Ring::Must, least } if shown < least => {
                all.insert(outcome.case.name.into(), (shown / 4).min(ENOUGH).to_string());
            }
            _ => {}
        }
    }
    let text: String = all.iter().map(|(name, what)| format!("{name} {what}\n")).collect();
    std::fs::write(PATH, text).map_err(|e| format!("cannot write {PATH}: {e}"))
}

/// What is wrong with a whole run between two hosts, if it is one: with a stack at one end only, or with flips, a case may have reasons to
/// stay with the kernel, but not many cases.
pub fn complaint(mode: Mode, outcomes: &[Outcome]) -> Option<String> {
    let must = |outcome: &&Outcome| matches!(of(outcome.case.name), Noted::Runs { ring: Ring::Must, .. });
    let of_mode: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.mode == mode).filter(must).collect();
    let has =
        |what: fn(&Report) -> u64| of_mode.iter().filter(|o| o.report.as_ref().is_some_and(|r| what(r) > 0)).count();
    let (carried, returned) = (has(|report| report.ring), has(|report| report.returned));
    let least = of_mode.len() * 2 / 3;
    if mode.stacks().is_none_or(<[_]>::is_empty) || of_mode.len() < MANY {
        return None;
    }
    let flips = if mode.flips() { returned } else { least };
    let is_wrong = carried < least || flips < least;
    is_wrong
        .then(|| format!("the stack has carried {carried} of {} cases, and {returned} have returned", of_mode.len()))
}

/// Fewer cases say nothing.
const MANY: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_its_line_and_nothing_else() {
        let mut cases: Vec<_> = crate::cases::all().map(|case| case.name).collect();
        cases.sort_unstable();
        let noted: Vec<_> = lines().map(|(name, _)| name).collect();
        assert_eq!(noted, cases);
        assert_eq!(noted.len(), NOTED.lines().count(), "each line can be read");
    }

    #[test]
    fn the_stack_must_carry_something_or_there_is_a_reason() {
        let nothing = |noted: &Noted| matches!(noted, Noted::Runs { ring: Ring::Must, least: 0 });
        assert_eq!(lines().filter(|(_, noted)| nothing(noted)).collect::<Vec<_>>(), []);
    }
}
