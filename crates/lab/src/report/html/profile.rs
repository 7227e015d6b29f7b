//! Where CPU time goes: in the programs, their libraries, the kernel.

use crate::report::findings::Findings;
use crate::report::profile::{ABOUT, Profiles};
use maud::{Markup, html};

/// The first columns, which are words and not numbers.
const WORDS: usize = 2;

pub fn section(findings: &Findings) -> Markup {
    let Some(profiles) = Profiles::of(findings.run) else { return html! {} };
    let headings = profiles.headings();
    html! {
        section id="profile" {
            h2 { "Where CPU time goes" }
            p.hint { (ABOUT) }
            div.scroll tabindex="0" role="region" aria-label="Where CPU time goes, by program" {
                table {
                    thead { tr {
                        @for name in &headings[..WORDS] { th scope="col" { (name) } }
                        @for name in &headings[WORDS..] { th.number scope="col" { (name) } }
                    } }
                    @for (title, lines) in profiles.cells() {
                        tbody {
                            @if !title.is_empty() {
                                tr.group { th scope="rowgroup" colspan=(headings.len()) { span { (title) } } }
                            }
                            @for line in lines { tr {
                                @for word in &line[..WORDS] { td { (word) } }
                                @for number in &line[WORDS..] { td.number { (number) } }
                            } }
                        }
                    }
                }
            }
        }
    }
}
