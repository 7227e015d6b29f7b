//! The summary that readers see first.

use super::verdicts::verdict;
use crate::report::answer::{Answer, answers, control, control_line, ending};
use crate::report::findings::Findings;
use maud::{Markup, html};

pub fn section(findings: &Findings) -> Markup {
    let answers = answers(findings);
    let notes = &findings.run.notes;
    html! {
        section id="answer" {
            @for answer in &answers { (said(answer, answers.len())) }
            p class=(if control(findings).is_some_and(|it| it.suspicious()) { "warning" } else { "" }) {
                (control_line(findings))
            }
            p { (ending(findings)) }
            @if !notes.is_empty() {
                h2.minor { "Notes" }
                ul { @for note in notes { li { (note) } } }
            }
        }
    }
}

/// With more variants than this, only the first sentence of each is visible at once.
const OPEN: usize = 3;

fn said(answer: &Answer, all: usize) -> Markup {
    html! {
        details.answer open[all <= OPEN] {
            summary.lead { (super::swatch(answer.variant)) (answer.lead()) "." }
            ul {
                @for part in &answer.parts {
                    li {
                        strong { (part.figure.title()) } " " (verdict(part.verdict)) (part.place()) ": "
                        span.size { (part.size()) }
                    }
                }
            }
        }
    }
}
