//! What the stack must carry of each case between two hosts, if it is at both ends.

use super::job::Outcome;
use super::modes::Mode;
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

/// Adds lines for cases that have none: half of the measured bytes, since it depends on the machine when the stack takes a
/// connection. For a case that was below its line, a quarter of the measured bytes.
pub fn note(outcomes: &[Outcome]) -> Result<(), String> {
    let mut all: std::collections::BTreeMap<String, String> = NOTED
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, what)| (name.to_owned(), what.to_owned()))
        .collect();
    for outcome in outcomes.iter().filter(|o| o.mode == Mode::HostsBoth && o.failure.is_none()) {
        let shown = outcome.report.as_ref().map_or(0, |report| report.ring);
        match of(outcome.case.name) {
            NOT_NOTED => drop(all.insert(outcome.case.name.into(), (shown / 2).to_string())),
            Noted::Runs { ring: Ring::Must, least } if shown < least => {
                all.insert(outcome.case.name.into(), (shown / 4).to_string());
            }
            _ => {}
        }
    }
    let text: String = all.iter().map(|(name, what)| format!("{name} {what}\n")).collect();
    std::fs::write(PATH, text).map_err(|e| format!("cannot write {PATH}: {e}"))
}

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
