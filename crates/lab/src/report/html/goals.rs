//! The scenario's goals, and whether they were reached.

use crate::report::findings::Findings;
use crate::report::goals::{GoalStatus, Judged, goals};
use maud::{Markup, html};

pub fn section(findings: &Findings) -> Markup {
    let goals = goals(findings);
    html! {
        @if !goals.is_empty() {
            section id="goals" {
                h2 { "Goals" }
                p.hint {
                    "Reached or missed where the whole interval is on that side of the limit; open where more rounds are "
                    "needed to tell."
                }
                ul { @for goal in &goals { li { (line(goal)) } } }
            }
        }
    }
}

fn line(goal: &Judged) -> Markup {
    html! {
        strong { (goal.goal.goal) } ": " (word(goal.standing())) (goal.share())
        @if goal.rest().next().is_some() {
            details {
                summary { "those that were not reached" }
                ul { @for part in goal.rest() { li { (word(part.standing)) " " (part.what) } } }
            }
        }
    }
}

/// Shown by colour, sign and word.
fn word(standing: GoalStatus) -> Markup {
    let (class, sign) = match standing {
        GoalStatus::Reached => ("verdict better", "\u{2714}"),
        GoalStatus::Missed => ("verdict worse", "\u{2718}"),
        GoalStatus::Open | GoalStatus::NotMeasured => ("verdict same", "?"),
    };
    html! { span class=(class) { span aria-hidden="true" { (sign) } " " (standing.word()) } }
}
