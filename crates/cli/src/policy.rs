//! `sidestep policy`: with whom pods may communicate.

use crate::Failure;
use crate::agent::{beside_the_point, print_json};
use crate::args::{Policy as Command, PolicyList, PolicyShow};
use crate::output;
use crate::service;
use crate::table::Table;
use sidestep_agent_api::{Answer, EnforcedPod, Policies, Policy, Question};
use std::process::ExitCode;

pub fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List(args) => list(args),
        Command::Show(args) => show(args),
        Command::Check(args) => service::check(args),
    }
}

fn policies(answer: Answer) -> Result<Policies, Failure> {
    match answer {
        Answer::Policies(policies) => Ok(policies),
        other => Err(beside_the_point(other)),
    }
}

fn list(args: &PolicyList) -> Result<ExitCode, Failure> {
    let mut found = policies(args.agent.ask(&Question::Policies)?)?;
    let is_wanted = |namespace: &str| args.namespace.as_ref().is_none_or(|wanted| wanted == namespace);
    found.policies.retain(|policy| is_wanted(&policy.namespace));
    found.pods.retain(|pod| is_wanted(&pod.namespace));
    if args.agent.json {
        print_json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table =
        Table::new(&["NAMESPACE", "POLICY", "SELECTS", "EGRESS", "INGRESS", ">RULES", ">PODS HERE", "MODE"]);
    found.policies.iter().for_each(|policy| table.row(row(policy)));
    output::print(table);
    found.pods.iter().for_each(print_unenforced);
    found.trouble.iter().for_each(output::line);
    if let Some(count) = found.admitted {
        output::line(format_args!("armed: {count} network namespaces may talk, beside the node's own"));
    }
    for count in found.reasons.iter().filter(|count| count.count > 0) {
        output::line(format_args!("{:>12} {}", count.count, count.reason));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(policy: &Policy) -> [String; 8] {
    let default = |of: &Option<String>| of.clone().unwrap_or_else(|| "-".into());
    [
        policy.namespace.clone(),
        policy.name.clone(),
        selects(policy),
        default(&policy.egress),
        default(&policy.ingress),
        policy.rules.len().to_string(),
        policy.pods.len().to_string(),
        mode(policy),
    ]
}

fn selects(policy: &Policy) -> String {
    let labels = policy.select.iter().map(|(key, value)| format!("{key}={value}"));
    let labels: Vec<String> = labels.chain(policy.expressions.iter().cloned()).collect();
    if labels.is_empty() { "all pods".into() } else { labels.join(",") }
}

fn mode(policy: &Policy) -> String {
    let mode = if policy.dry_run { "dry run".into() } else { policy.on_deny.clone() };
    if policy.require_proxy { format!("{mode}, requires the proxy") } else { mode }
}

fn print_unenforced(pod: &EnforcedPod) {
    if !pod.enforced {
        let why = if pod.troubles.is_empty() { "its policies say nothing".into() } else { pod.troubles.join("; ") };
        output::line(format_args!("{}/{} is not enforced: {why}", pod.namespace, pod.name));
    }
}

#[derive(Debug, thiserror::Error)]
#[error("there is no Policy {0}")]
struct NoPolicy(String);

fn show(args: &PolicyShow) -> Result<ExitCode, Failure> {
    let (namespace, name) = args.name.split_once('/').unwrap_or(("default", &args.name));
    let found = policies(args.agent.ask(&Question::Policies)?)?;
    let mine = found.policies.iter().find(|policy| (&*policy.namespace, &*policy.name) == (namespace, name));
    let Some(policy) = mine else { return Err(Failure::new(NoPolicy(format!("{namespace}/{name}")))) };
    if args.agent.json {
        print_json(policy)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format_args!("{namespace}/{name}, {}, for {}", mode(policy), selects(policy)));
    for (direction, default) in [("egress", &policy.egress), ("ingress", &policy.ingress)] {
        if let Some(default) = default {
            output::line(format_args!("  {direction}: {default} what no rule fits"));
        }
    }
    policy.rules.iter().for_each(|rule| output::line(format_args!("  {rule}")));
    policy.pods.iter().for_each(|pod| output::line(format_args!("pod {pod}")));
    Ok(ExitCode::SUCCESS)
}
