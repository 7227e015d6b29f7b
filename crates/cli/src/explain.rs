//! `sidestep explain`: what happens to a connection, rule by rule.

use crate::Failure;
use crate::agent::{beside_the_point, print_json};
use crate::args::Explain;
use crate::carrier;
use crate::destination::{self, Destination};
use crate::output;
use crate::service;
use crate::table::Table;
use sidestep_agent_api::{Answer, Explanation, Question, Verdict};
use std::process::ExitCode;

pub fn explain(args: &Explain) -> Result<ExitCode, Failure> {
    let Some(to) = &args.to else { return carrier::explain(args) };
    let explanation = match args.agent.ask(&question(args, to)?)? {
        Answer::Explanation(explanation) => explanation,
        other => return Err(beside_the_point(other)),
    };
    if args.agent.json {
        print_json(&explanation)?;
    } else {
        print(&explanation);
    }
    Ok(ExitCode::SUCCESS)
}

fn question(args: &Explain, to: &str) -> Result<Question, Failure> {
    if args.inbound {
        let (protocol, port) = destination::port(to).map_err(Failure::usage)?;
        let (netns, interface, source) = (args.from.clone(), args.interface.clone(), args.source);
        return Ok(Question::ExplainInbound { netns, port, interface, source, protocol });
    }
    if let Ok(from) = args.from.parse() {
        let Destination { protocol, address } = destination::destination(to).map_err(Failure::usage)?;
        return Ok(Question::ExplainPacket { from, protocol, to: address });
    }
    let from = destination::caller(&args.from).map_err(Failure::usage)?;
    let Destination { protocol, address } = destination::destination(to).map_err(Failure::usage)?;
    Ok(Question::Explain { from, protocol, to: address })
}

fn print(explanation: &Explanation) {
    let mut table = Table::new(&["RULE", "OUTCOME"]);
    for step in &explanation.steps {
        table.row([step.rule.clone(), step.outcome.clone()]);
    }
    output::print(table);
    let service = explanation.service.as_deref().unwrap_or_default();
    output::line(format_args!("\n{}", verdict(explanation.verdict, service)));
    if !explanation.backends.is_empty() {
        output::print(service::backends(&explanation.backends));
    }
}

fn verdict(verdict: Verdict, service: &str) -> String {
    match verdict {
        Verdict::Translated => format!("goes to a backend of {service}"),
        Verdict::Refused if service.is_empty() => "is refused at once".into(),
        Verdict::Refused => format!("is refused at once: {service} has no backend"),
        Verdict::CapturedOutbound => "goes to the pod's proxy, as what the pod sends".into(),
        Verdict::CapturedInbound => "goes to the pod's proxy, as what the pod receives".into(),
        Verdict::CapturedDns => "goes to the pod's proxy, as a question to a name server".into(),
        Verdict::DeniedOut => "is denied by policies of the pod that calls".into(),
        Verdict::DeniedIn => "is denied by policies of the pod that is called".into(),
        Verdict::Dropped => format!("is dropped: {service} does not serve this sender here"),
        Verdict::Untouched => "is left to the kernel, as without Sidestep".into(),
    }
}
