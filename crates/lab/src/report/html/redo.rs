//! Everything that is needed to repeat the run.

use crate::report::answer::machine;
use crate::report::units;
use crate::result::Run;
use maud::{Markup, html};

pub fn section(run: &Run) -> Markup {
    html! {
        section id="redo" {
            h2 { "To do it again" }
            pre tabindex="0" { code { (command(run)) } }
            dl {
                @for (name, value) in facts(run) { dt { (name) } dd { (value) } }
            }
            (programs(run))
            details {
                summary { "The scenario, as it was read" }
                pre tabindex="0" { code { (run.scenario.text) } }
            }
            details {
                summary { "The variants" }
                dl { @for one in &run.variants { dt { (one.name) } dd { (one.about) } } }
            }
        }
    }
}

/// Quoted for a shell.
fn command(run: &Run) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = run.command.iter().map(|word| match word.chars().all(plain) && !word.is_empty() {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn facts(run: &Run) -> Vec<(&'static str, String)> {
    let about = &run.scenario;
    let governor = run.machine.governor.clone().unwrap_or("none".into());
    vec![
        ("begun", run.begun.to_string()),
        ("machine", machine(&run.machine)),
        ("clock, governor", format!("{}, {governor}", run.machine.clocksource)),
        ("Sidestep", run.version.clone()),
        ("seed", run.seed.to_string()),
        (
            "precision asked for",
            format!("\u{b1}{} of the ratio, at {}", units::part(about.precision), units::part(about.confidence)),
        ),
    ]
}

fn programs(run: &Run) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Programs" {
            table {
                thead { tr { th scope="col" { "program" } th scope="col" { "version" } th scope="col" { "path" } } }
                tbody {
                    @for (name, program) in &run.programs {
                        tr {
                            th scope="row" { (name) }
                            td { (program.version.as_deref().unwrap_or("does not say")) }
                            td { code { (program.path) } }
                        }
                    }
                }
            }
        }
    }
}
