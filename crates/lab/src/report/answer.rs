//! The result of a run in a few sentences.

use super::findings::Findings;
use super::units;
use crate::result::{Ended, Figure, Machine};
use crate::stats::{Comparison, Interval, Verdict, half_width};
use std::fmt;

/// The sentences about one variant.
pub struct Answer<'a> {
    pub variant: usize,
    pub name: &'a str,
    pub baseline: &'a str,
    pub parts: Vec<Part>,
}

/// For one figure: all cells with the same verdict.
pub struct Part {
    pub figure: Figure,
    pub verdict: Verdict,
    /// The cells' titles, and the number of all cells.
    pub cells: Vec<String>,
    pub of: usize,
    /// Only if there is a single cell.
    pub ratio: Option<f64>,
    /// The smallest interval that contains those of all these cells.
    pub hull: Option<Interval>,
}

pub const VERDICTS: [Verdict; 4] = [Verdict::Better, Verdict::Worse, Verdict::NoDifference, Verdict::TooFewRounds];

/// More cells than this are counted instead of named.
const NAMED: usize = 3;

pub fn answers<'a>(findings: &Findings<'a>) -> Vec<Answer<'a>> {
    let run = findings.run;
    let Some(baseline) = run.variants.iter().find(|one| one.baseline) else { return Vec::new() };
    let others = run.variants.iter().enumerate().filter(|(_, one)| !one.baseline && !one.control);
    let answer = |(variant, one): (usize, &'a crate::result::Variant)| Answer {
        variant,
        name: &one.name,
        baseline: &baseline.name,
        parts: parts(findings, variant),
    };
    others.map(answer).collect()
}

fn parts(findings: &Findings, variant: usize) -> Vec<Part> {
    let figures = findings.run.scenario.judged.iter();
    figures.flat_map(|&figure| VERDICTS.iter().filter_map(move |&each| part(findings, variant, figure, each))).collect()
}

fn part(findings: &Findings, variant: usize, figure: Figure, verdict: Verdict) -> Option<Part> {
    let all: Vec<_> = findings.compared(variant).filter(|(one, _)| one.figure == figure).collect();
    let same: Vec<_> = all.iter().filter(|(_, beside)| beside.verdict == verdict).collect();
    let ratio = same.first().filter(|_| all.len() == 1).map(|(_, beside)| beside.ratio);
    (!same.is_empty()).then(|| Part {
        figure,
        verdict,
        cells: same.iter().map(|(one, _)| findings.cell(one).title()).collect(),
        of: all.len(),
        ratio,
        hull: hull(same.iter().filter_map(|(_, beside)| beside.interval)),
    })
}

fn hull(intervals: impl Iterator<Item = Interval>) -> Option<Interval> {
    intervals.reduce(|one, other| Interval { low: one.low.min(other.low), high: one.high.max(other.high) })
}

/// `sidestep is better than plain in 10 of 12 comparisons, worse in none; no difference in 2`; counts are in the order of
/// `VERDICTS`.
pub fn lead(name: &str, base: &str, counts: [usize; 4]) -> String {
    let [better, worse, same, few] = counts;
    let all: usize = counts.iter().sum();
    let of = if all > 1 { format!(" of {all} comparisons") } else { String::new() };
    let place = |number: usize| if all > 1 { format!(" in {number}{of}") } else { String::new() };
    let mut text = match (better, worse, same) {
        (0, 0, 0) if all == 0 => return format!("{name} could not be compared with {base}"),
        (0, 0, 0) => return format!("{name} had too few rounds to be compared with {base}"),
        (0, 0, _) => format!("{name} is no different from {base}{}", place(same)),
        (0, _, _) => format!("{name} is worse than {base}{}", place(worse)),
        _ => format!("{name} is better than {base}{}", place(better)),
    };
    if better > 0 && all > 1 {
        text += &format!(", worse in {}", if worse == 0 { "none".into() } else { worse.to_string() });
    }
    let rest = [(same * (better + worse).min(1), "no difference in"), (few, "too few rounds in")];
    text + &rest.iter().filter(|one| one.0 > 0).map(|(count, what)| format!("; {what} {count}")).collect::<String>()
}

impl Answer<'_> {
    pub fn lead(&self) -> String {
        lead(self.name, self.baseline, VERDICTS.map(|verdict| self.count(verdict)))
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.parts.iter().filter(|part| part.verdict == verdict).map(|part| part.cells.len()).sum()
    }
}

impl Part {
    /// `in all 4 cells`, `in 1 of 4 cells (connections 64)`; empty if there is a single cell.
    pub fn place(&self) -> String {
        match (self.cells.len(), self.of) {
            (_, 1) => String::new(),
            (some, all) if some == all => format!(" in all {all} cells"),
            (some, all) if some <= NAMED => format!(" in {some} of {all} cells ({})", self.cells.join("; ")),
            (some, all) => format!(" in {some} of {all} cells"),
        }
    }

    /// `+41.2 % (+39.0 % … +43.1 %)`; for several cells only the interval around all.
    pub fn size(&self) -> String {
        match (self.ratio, self.hull) {
            (Some(ratio), Some(hull)) => format!("{} ({})", units::change(ratio), units::changes(hull)),
            (Some(ratio), None) => units::change(ratio),
            (None, Some(hull)) => units::changes(hull),
            (None, None) => String::new(),
        }
    }
}

/// What the control (the baseline compared with itself) says about the reliability of all verdicts.
pub struct Control {
    pub different: usize,
    pub of: usize,
    /// The number to be expected by chance.
    pub chance: f64,
    /// The largest change, as a ratio.
    pub largest: f64,
}

pub fn control(findings: &Findings) -> Option<Control> {
    let variant = findings.run.variants.iter().position(|one| one.control)?;
    let all: Vec<Comparison> = findings.compared(variant).map(|(_, beside)| *beside).collect();
    Some(Control::of(&all, findings.run.scenario.confidence))
}

impl Control {
    pub fn of(all: &[Comparison], confidence: f64) -> Control {
        let judged: Vec<_> = all.iter().filter(|one| one.verdict != Verdict::TooFewRounds).collect();
        let by_size = |one: &f64, other: &f64| one.ln().abs().total_cmp(&other.ln().abs());
        Control {
            different: judged.iter().filter(|one| one.verdict != Verdict::NoDifference).count(),
            of: judged.len(),
            chance: judged.len() as f64 * (1.0 - confidence),
            largest: all.iter().map(|one| one.ratio).max_by(by_size).unwrap_or(1.0),
        }
    }

    /// More than two standard deviations above the number expected by chance.
    pub fn suspicious(&self) -> bool {
        self.different as f64 > self.chance + 2.0 * self.chance.sqrt()
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of == 0 {
            return write!(f, "The control, the baseline measured twice, could not be compared.");
        }
        write!(f, "The control, the baseline measured twice, was called different in {} of ", self.different)?;
        write!(f, "{} (by chance: {:.1}); ", units::many(self.of, "comparison"), self.chance)?;
        write!(f, "its largest change was {}.", units::change(self.largest))?;
        if self.suspicious() {
            write!(f, " That is more than chance: do not believe changes that are not clearly larger.")?;
        }
        Ok(())
    }
}

/// The sentence about the control, or that there is none.
pub fn control_line(findings: &Findings) -> String {
    let none = "No control took part: what noise alone can do on this machine is not known.";
    control(findings).map_or(none.into(), |control| control.to_string())
}

/// Why the run ended, and how exact it is.
pub fn ending(findings: &Findings) -> String {
    let run = findings.run;
    let until = match run.ended {
        Ended::Done => "it was done",
        Ended::TimeLimit => "its time limit",
        Ended::Interrupted => "it was interrupted",
    };
    let (narrow, all) = narrow(findings);
    let (time, asked) = (units::duration(run.seconds), units::part(run.scenario.precision));
    format!("It ran for {time}, until {until}. Intervals as narrow as asked for (\u{b1}{asked}): {narrow} of {all}.")
}

fn narrow(findings: &Findings) -> (usize, usize) {
    let besides: Vec<_> = findings.judged.iter().filter_map(|one| one.beside).collect();
    let narrow = |one: &&Comparison| half_width(one).is_some_and(|half| half <= findings.run.scenario.precision);
    (besides.iter().filter(narrow).count(), besides.len())
}

/// The machine: `4 cores of AMD EPYC, Linux 6.1, kvm`.
pub fn machine(machine: &Machine) -> String {
    let under = machine.hypervisor.as_ref().map(|name| format!(", under {name}")).unwrap_or_default();
    let cores = units::many(machine.cores, "core");
    let memory = units::bytes(machine.memory as f64);
    format!("{cores} of {}, {memory}, Linux {}, {}{under}", machine.cpu, machine.kernel, machine.distribution)
}
