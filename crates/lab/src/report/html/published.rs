//! The reproduced experiment, compared with ours.

use super::verdicts::change;
use crate::report::findings::{Finding, Findings};
use crate::report::published::ours;
use crate::report::units;
use crate::result::{Published, PublishedFigure};
use maud::{Markup, html};

pub fn section(findings: &Findings) -> Markup {
    let Some(published) = &findings.run.scenario.published else { return html! {} };
    html! {
        section id="published" {
            h2 { "Beside what was published" }
            p { (source(published)) }
            p.hint { "Measured on: " (published.setup) }
            @if !published.figures.is_empty() { (table(findings, published)) }
            @if !published.differs.is_empty() {
                h3 { "How this differs from it" }
                ul { @for one in &published.differs { li { (one) } } }
            }
        }
    }
}

/// Links only to http and https, whatever the scenario says.
fn source(published: &Published) -> Markup {
    let url = published.url.as_ref().filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    html! {
        @if let Some(url) = url { a href=(url) rel="noreferrer" { (published.source) } } @else { (published.source) }
    }
}

fn table(findings: &Findings, published: &Published) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Published figures beside ours" {
            table.published {
                thead {
                    tr {
                        th rowspan="2" scope="col" { "what" }
                        th colspan="3" scope="colgroup" { "published" }
                        th colspan="3" scope="colgroup" { "here" }
                    }
                    tr { @for name in ["before", "after", "change", "before", "after", "change"] { th scope="col" { (name) } } }
                }
                tbody { @for one in &published.figures { (row(findings, one)) } }
            }
        }
    }
}

fn row(findings: &Findings, published: &PublishedFigure) -> Markup {
    html! {
        tr {
            th scope="row" { (published.what) }
            td { (published.baseline) }
            td { (published.improved) }
            td { (published.change) }
            @match ours(findings, published) {
                Some((base, own)) => {
                    td { (median(&base)) }
                    td { (median(&own)) span.interval { (findings.variant(&own).name) } }
                    td { @if let Some(beside) = &own.beside { (change(beside)) } }
                }
                None => { td colspan="3" { "not measured" } }
            }
        }
    }
}

fn median(one: &Finding) -> String {
    one.median.map_or(units::NOTHING.into(), |median| units::value(one.figure, median))
}
