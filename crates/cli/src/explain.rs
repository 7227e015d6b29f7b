//! `sidestep explain`: the way of a connection, rule by rule.

use crate::Failure;
use crate::agent::{beside_the_point, print_json};
use crate::args::Explain;
use crate::destination::Destination;
use crate::service;
use crate::table::Table;
use sidestep_agent_api::{Answer, Explanation, Question, Verdict};
use std::process::ExitCode;

pub fn explain(args: &Explain) -> Result<ExitCode, Failure> {
    let Destination { protocol, address } = args.to;
    let question = Question::Explain { from: args.from.clone(), protocol, to: address };
    let explanation = match args.agent.ask(&question)? {
        Answer::Explanation(explanation) => explanation,
        other => return Err(beside_the_point(&other)),
    };
    if args.agent.json {
        print_json(&explanation)?;
    } else {
        print(&explanation);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(explanation: &Explanation) {
    let mut table = Table::new(&["RULE", "OUTCOME"]);
    for step in &explanation.steps {
        table.row([step.rule.clone(), step.outcome.clone()]);
    }
    print!("{table}");
    let service = explanation.service.as_deref().unwrap_or_default();
    println!("\n{}", verdict(explanation.verdict, service));
    if !explanation.backends.is_empty() {
        print!("{}", service::backends(&explanation.backends));
    }
}

fn verdict(verdict: Verdict, service: &str) -> String {
    match verdict {
        Verdict::Translated => format!("goes to a backend of {service}"),
        Verdict::Refused => format!("is refused at once: {service} has no backend"),
        Verdict::Untouched => "is left to the kernel, as without Sidestep".into(),
    }
}
