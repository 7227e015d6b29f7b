//! What a decider reads first, and perhaps only.

use super::verdicts::verdict;
use crate::report::answer::{Answer, answers, control, control_line, ending};
use crate::report::findings::Findings;
use maud::{Markup, html};

pub fn section(findings: &Findings) -> Markup {
    let notes = &findings.run.notes;
    html! {
        section id="answer" {
            @for answer in answers(findings) { (said(&answer)) }
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

fn said(answer: &Answer) -> Markup {
    html! {
        div.answer {
            p.lead { (super::swatch(answer.variant)) (answer.lead()) "." }
            ul {
                @for part in &answer.parts {
                    li { strong { (part.figure.title()) } " " (verdict(part.verdict)) (part.place()) span.size { (part.size()) } }
                }
            }
        }
    }
}
