//! The result of a run in one sentence for each variant.

use super::judgement::{Judgement, Line};
use crate::result::Figure;
use crate::stats::{Comparison, Verdict};
use indexmap::IndexSet;

/// `In short, with rings instead of plain: requests/s rises by 35 % to 364 %, and p90 does not differ.`
pub fn sentences(judgement: &Judgement) -> Vec<String> {
    let Some(baseline) = judgement.baseline() else { return Vec::new() };
    let all: Vec<(&Line, &Comparison)> = judgement.compared().collect();
    let variants: IndexSet<&str> = all.iter().map(|(line, _)| line.variant.as_str()).collect();
    let sentence = |variant: &str| {
        let clauses = judgement.judged.iter().filter_map(|&figure| {
            let own = all.iter().filter(|(line, _)| line.variant == variant && line.figure == figure);
            clause(figure, &own.map(|(_, beside)| **beside).collect::<Vec<_>>())
        });
        format!("In short, with {variant} instead of {baseline}: {}.", joined(&clauses.collect::<Vec<_>>()))
    };
    variants.into_iter().map(sentence).collect()
}

/// For one figure, over all cells.
fn clause(figure: Figure, all: &[Comparison]) -> Option<String> {
    let title = figure.title();
    let differing: Vec<f64> =
        all.iter().filter(|one| matches!(one.verdict, Verdict::Better | Verdict::Worse)).map(|one| one.ratio).collect();
    let few = all.iter().filter(|one| one.verdict == Verdict::TooFewRounds).count();
    if all.is_empty() {
        return None;
    }
    if few == all.len() {
        return Some(format!("{title} had too few rounds"));
    }
    let low = differing.iter().copied().reduce(f64::min);
    let high = differing.iter().copied().reduce(f64::max);
    let Some((low, high)) = low.zip(high) else { return Some(format!("{title} does not differ")) };
    let moves = match (low < 1.0, high > 1.0) {
        (true, true) => format!("falls by up to {} or rises by up to {}", percent(low), percent(high)),
        (true, false) => format!("falls by {}", span(percent(high), percent(low))),
        _ => format!("rises by {}", span(percent(low), percent(high))),
    };
    let place = if differing.len() == all.len() {
        String::new()
    } else {
        format!(" in {} of {} cells", differing.len(), all.len())
    };
    Some(format!("{title} {moves}{place}"))
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", ((ratio - 1.0) * 100.0).abs())
}

fn span(from: String, to: String) -> String {
    if from == to { from } else { format!("{from} to {to}") }
}

/// `a`, `a and b`, `a, b, and c`
fn joined(parts: &[String]) -> String {
    match parts {
        [] => "nothing could be compared".into(),
        [only] => only.clone(),
        [one, other] => format!("{one}, and {other}"),
        [first @ .., last] => format!("{}, and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ratio: f64, verdict: Verdict) -> Comparison {
        Comparison { ratio, interval: None, verdict, rounds: 6 }
    }

    #[test]
    fn clauses_say_which_way_and_where() {
        let (up, more) = (comparison(1.35, Verdict::Better), comparison(4.64, Verdict::Better));
        let (down, same) = (comparison(0.5, Verdict::Worse), comparison(1.01, Verdict::NoDifference));
        let few = comparison(2.0, Verdict::TooFewRounds);
        let said = |all: &[Comparison]| clause(Figure::Rate, all).expect("a clause");
        assert_eq!(said(&[up, more]), "requests/s rises by 35 % to 364 %");
        assert_eq!(said(&[up, same]), "requests/s rises by 35 % in 1 of 2 cells");
        assert_eq!(said(&[down, more]), "requests/s falls by up to 50 % or rises by up to 364 %");
        assert_eq!(said(&[same, same]), "requests/s does not differ");
        assert_eq!(said(&[few]), "requests/s had too few rounds");
        assert_eq!(clause(Figure::Rate, &[]), None);
    }

    #[test]
    fn parts_are_joined() {
        let parts = ["a", "b", "c"].map(String::from);
        assert_eq!((joined(&parts[..1]).as_str(), joined(&parts[..2]).as_str()), ("a", "a, and b"));
        assert_eq!(joined(&parts), "a, b, and c");
    }
}
