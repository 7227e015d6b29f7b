//! `sidestep service`: the Services that the agent balances.

use crate::Failure;
use crate::agent::{beside_the_point, print_json};
use crate::args::{Service as Command, ServiceCheck, ServiceList, ServiceShow};
use crate::output;
use crate::table::Table;
use sidestep_agent_api::{Answer, Backend, Bypass, Check, Port, Question, Service};
use std::process::ExitCode;

pub fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List(args) => list(args),
        Command::Show(args) => show(args),
        Command::Check(args) => check(args),
    }
}

fn list(args: &ServiceList) -> Result<ExitCode, Failure> {
    let mut services = services(args.agent.ask(&Question::List)?)?;
    services.retain(|service| args.namespace.as_ref().is_none_or(|wanted| *wanted == service.namespace));
    if args.agent.json {
        print_json(&services)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table =
        Table::new(&["NAMESPACE", "SERVICE", "PORT", "ADDRESSES", ">BACKENDS", ">PICKS", ">AFFINITY", ">REFUSED"]);
    for service in &services {
        for port in &service.ports {
            table.row(row(service, port));
        }
    }
    output::print(table);
    services.iter().for_each(print_remarks);
    Ok(ExitCode::SUCCESS)
}

fn services(answer: Answer) -> Result<Vec<Service>, Failure> {
    match answer {
        Answer::Services(services) => Ok(services),
        other => Err(beside_the_point(other)),
    }
}

fn row(service: &Service, port: &Port) -> [String; 8] {
    let addresses: Vec<_> = port.frontends.iter().map(|frontend| frontend.address.as_str()).collect();
    [
        service.namespace.clone(),
        service.name.clone(),
        [port.name.as_str(), &port.protocol.to_string()].join(" ").trim().into(),
        addresses.join(", "),
        port.backend_count.to_string(),
        port.counters.picks.to_string(),
        port.counters.affinity_hits.to_string(),
        port.counters.refused.to_string(),
    ]
}

/// Prints what is not as the Service's author may expect.
fn print_remarks(service: &Service) {
    let name = format!("{}/{}", service.namespace, service.name);
    service.problems.iter().for_each(|problem| output::line(format_args!("{name}: {problem}")));
    service.left.iter().for_each(|left| output::line(format_args!("{name}: left out: {left}")));
}

#[derive(Debug, thiserror::Error)]
#[error("the agent knows {count} Services {name}")]
struct NotOne {
    count: usize,
    name: String,
}

fn show(args: &ServiceShow) -> Result<ExitCode, Failure> {
    let (namespace, name) = args.name.split_once('/').unwrap_or(("default", &args.name));
    let question = Question::Show { namespace: namespace.into(), name: name.into() };
    let services = services(args.agent.ask(&question)?)?;
    let [service] = services.as_slice() else {
        return Err(Failure::new(NotOne { count: services.len(), name: args.name.clone() }));
    };
    if args.agent.json {
        print_json(service)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format_args!("{}/{}", service.namespace, service.name));
    service.bypass.iter().for_each(print_bypass);
    service.ports.iter().for_each(print_port);
    print_remarks(service);
    Ok(ExitCode::SUCCESS)
}

fn print_bypass(bypass: &Bypass) {
    let whose = if bypass.inbound { "clients' and servers'" } else { "clients'" };
    match &bypass.refused {
        None => output::line(format_args!("its connections go around {whose} proxies")),
        Some(why) => output::line(format_args!("asks to go around {whose} proxies, and does not: {why}")),
    }
}

fn print_port(port: &Port) {
    let name = if port.name.is_empty() { String::new() } else { format!("{} ", port.name) };
    let local = if port.policy == "Local" { ", only backends of this node" } else { "" };
    let Port { protocol, family, selection, .. } = port;
    let affinity = affinity(port);
    output::line(format_args!("\n{name}{protocol}, IPv{family}{local}, selection {selection}{affinity}"));
    for frontend in &port.frontends {
        output::line(format_args!("  {} -> {} backends", frontend.address, frontend.backends));
    }
    output::print(backends(&port.backends));
    for unused in &port.unused {
        output::line(format_args!("not used: {}: {}", unused.address, unused.why));
    }
}

fn affinity(port: &Port) -> String {
    match port.affinity_seconds {
        0 => String::new(),
        seconds => format!(", a client keeps its backend for {seconds} s"),
    }
}

pub fn backends(backends: &[Backend]) -> Table {
    let mut table = Table::new(&["BACKEND", ">WEIGHT", ">ACTIVE", ">PICKS"]);
    for backend in backends {
        let numbers = [backend.weight.to_string(), backend.active.to_string(), backend.picks.to_string()];
        table.row(std::iter::once(backend.address.to_string()).chain(numbers));
    }
    table
}

pub fn check(args: &ServiceCheck) -> Result<ExitCode, Failure> {
    let check = match args.agent.ask(&Question::Check)? {
        Answer::Check(check) => check,
        other => return Err(beside_the_point(other)),
    };
    if args.agent.json {
        print_json(&check)?;
    } else {
        print_check(&check);
    }
    Ok(if check.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_check(check: &Check) {
    for trouble in &check.troubles {
        output::line(format_args!("cannot read {}: {}", trouble.place, trouble.what));
    }
    check.problems.iter().for_each(output::line);
    check.differences.iter().for_each(output::line);
    if !check.differences.is_empty() {
        output::line("Start the agent again: it writes all tables anew, without a gap.");
    }
    if let Some(admitted) = check.admitted {
        output::line(format_args!("armed: {admitted} network namespaces may talk, beside the node's own"));
        for path in &check.barred {
            output::line(format_args!("  not admitted, so that it may talk with nobody: {path}"));
        }
    }
    let Check { frontends, captures, enforced, .. } = check;
    let differences = check.differences.len();
    output::line(format_args!(
        "{frontends} frontends, {captures} captured and {enforced} enforced pods compared, {differences} differences"
    ));
}
