//! `sidestep explain PID` and `sidestep explain LINK.SLOT`: what carries connections, and why.

use crate::Failure;
use crate::args::{Explain, connection};
use crate::output;
use crate::reasons::meaning;
use crate::table::Table;
use serde::Serialize;
use sidestep_broker::broker::hold::Scope;
use sidestep_broker::client::{ClientError, Operator};
use sidestep_broker::status::{Carrier, Connection, Direction, Reasons, Status, Waiting};
use std::process::ExitCode;

/// What is known of the connections of a process, or of one connection.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Explained {
    connections: Vec<Line>,
    /// Of the process: how often it gave each reason.
    reasons: Reasons,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Line {
    /// `LINK.SLOT`; absent: the connection has none.
    name: Option<String>,
    local: String,
    remote: String,
    /// From the first process to the second, and back.
    carriers: [Carrier; 2],
    /// Name of the reason for which a direction is on the kernel.
    reason: Option<String>,
    why: String,
}

pub fn explain(args: &Explain) -> Result<ExitCode, Failure> {
    let which = which(&args.from).ok_or_else(|| Failure::usage(NoDestination(args.from.clone())))?;
    let status = Operator::connect(&args.broker.address()).and_then(|o| o.status()).map_err(Failure::new)?;
    let explained = find(&status, which).ok_or_else(|| Failure::new(ClientError::Unknown))?;
    if args.agent.json {
        output::line(serde_json::to_string_pretty(&explained).map_err(Failure::new)?);
    } else {
        output::print(text(&explained));
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, thiserror::Error)]
#[error("{0}: without a destination, expected a process id, or a connection as `sidestep status` names it")]
struct NoDestination(String);

fn which(text: &str) -> Option<Scope> {
    text.parse().map(Scope::Process).ok().or_else(|| connection(text).ok())
}

/// None: the broker knows no such process or connection.
fn find(status: &Status, which: Scope) -> Option<Explained> {
    match which {
        Scope::All => None,
        Scope::Connection { link, slot } => {
            let name = format!("{link}.{slot}");
            let found = status.connections.iter().find(|connection| connection.id == name)?;
            Some(Explained { connections: vec![with_slot(found, status)], reasons: Reasons::new() })
        }
        Scope::Process(pid) => {
            let process = status.processes.iter().find(|process| process.pid == pid)?;
            let with_slots = status.connections.iter().filter(|connection| connection.pids.contains(&pid));
            let waiting = status.waiting.iter().filter(|waiting| waiting.pid == pid);
            let connections = with_slots.map(|connection| with_slot(connection, status));
            let connections = connections.chain(waiting.map(|waiting| without_slot(waiting, status))).collect();
            Some(Explained { connections, reasons: process.reasons.clone() })
        }
    }
}

fn with_slot(connection: &Connection, status: &Status) -> Line {
    let Connection { id, local, remote, directions, .. } = connection;
    let reason = directions.iter().filter(|d| d.carrier == Carrier::Kernel).find_map(|d| d.reason.clone());
    Line {
        name: Some(id.clone()),
        local: local.clone(),
        remote: remote.clone(),
        carriers: directions.each_ref().map(|d| d.carrier),
        why: why(connection, reason.as_deref(), status),
        reason,
    }
}

fn why(connection: &Connection, reason: Option<&str>, status: &Status) -> String {
    let Connection { directions, pids, hold, .. } = connection;
    let is_stacks = status.stack.pid.is_some_and(|pid| pids.contains(&pid));
    let by_kernel = |d: &Direction| d.carrier == Carrier::Kernel;
    let carried = if is_stacks { "the stack carries it to another host" } else { "both ends are on this host" };
    match reason.map(meaning) {
        _ if !directions.iter().any(by_kernel) => carried.into(),
        _ if *hold => "detached: `sidestep attach` takes that back".into(),
        Some(meaning) => meaning.into(),
        None if is_stacks => "the stack is about to take it, or its program must use it more".into(),
        None => "a direction begins with its next bytes".into(),
    }
}

fn without_slot(waiting: &Waiting, status: &Status) -> Line {
    let Waiting { local, remote, passive, declined, .. } = waiting;
    let why = match declined.as_deref().map(meaning) {
        Some(meaning) => meaning,
        None if *passive => "it is used too little to be offered for its own sake",
        None if status.stack.pid.is_none() => "no program under Sidestep has its other end here, and there is no stack",
        None => "no program under Sidestep has its other end here, and the stack has not answered yet",
    };
    Line {
        name: None,
        local: local.clone(),
        remote: remote.clone(),
        carriers: [Carrier::Kernel; 2],
        reason: declined.clone(),
        why: why.into(),
    }
}

fn text(explained: &Explained) -> String {
    let mut table = Table::new(&["NAME", "LOCAL", "REMOTE", "CARRIER", "REASON", "WHY"]);
    for line in &explained.connections {
        let reason = line.reason.clone().unwrap_or_default();
        let name = line.name.clone().unwrap_or_else(|| "-".into());
        table.row([name, line.local.clone(), line.remote.clone(), carriers(line.carriers), reason, line.why.clone()]);
    }
    let mut out = if explained.connections.is_empty() {
        "No connection is offered or carried\n".into()
    } else {
        table.to_string()
    };
    if !explained.reasons.is_empty() {
        let mut table = Table::new(&["REASON", ">COUNT", "MEANING"]);
        for (name, count) in &explained.reasons {
            table.row([name.clone(), count.to_string(), meaning(name).into()]);
        }
        out += &format!("\nStayed on the kernel, or went back to it\n{table}");
    }
    out
}

fn carriers([there, back]: [Carrier; 2]) -> String {
    if there == back { there.to_string() } else { format!("{there}, back {back}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_broker::status::{Process, Stack};

    fn status() -> Status {
        let way = |carrier, reason: Option<&str>| Direction {
            carrier,
            reason: reason.map(Into::into),
            ..Direction::default()
        };
        let connection =
            |id: &str, pids, directions| Connection { id: id.into(), pids, directions, ..Connection::default() };
        let waiting = |remote: &str, passive, declined: Option<&str>| Waiting {
            pid: 7,
            remote: remote.into(),
            passive,
            declined: declined.map(Into::into),
            ..Waiting::default()
        };
        Status {
            processes: vec![Process { pid: 7, ..Process::default() }],
            connections: vec![
                connection("1.0", [7, 9], [way(Carrier::Stack, Some("loss")), way(Carrier::Stack, None)]),
                connection("1.1", [7, 9], [way(Carrier::Kernel, None), way(Carrier::Kernel, Some("loss"))]),
                connection("2.0", [7, 8], [way(Carrier::Ring, None), way(Carrier::Ring, None)]),
                connection("3.0", [8, 6], [way(Carrier::Ring, None), way(Carrier::Kernel, Some("bulk"))]),
            ],
            waiting: vec![
                waiting("a", false, Some("kernel-only")),
                waiting("b", true, None),
                waiting("c", false, None),
            ],
            stack: Stack { pid: Some(9), ..Stack::default() },
            ..Status::default()
        }
    }

    #[test]
    fn each_connection_of_a_process_has_a_cause() {
        let explained = find(&status(), Scope::Process(7)).expect("it is known");
        let whys: Vec<&str> = explained.connections.iter().map(|line| line.why.as_str()).collect();
        assert_eq!(whys[0], "the stack carries it to another host");
        assert_eq!(whys[1], meaning("loss"));
        assert_eq!(whys[2], "both ends are on this host");
        assert_eq!(whys[3], meaning("kernel-only"));
        assert!(whys[4].contains("too little") && whys[5].contains("has not answered"), "{whys:?}");
        assert_eq!(explained.connections[0].reason, None, "what is carried has none");
        assert_eq!(find(&status(), Scope::Process(1)), None);
    }

    #[test]
    fn one_connection_is_found_by_its_name() {
        let found = find(&status(), Scope::Connection { link: 3, slot: 0 }).expect("it is there");
        assert_eq!((found.connections.len(), found.connections[0].why.as_str()), (1, meaning("bulk")));
        assert_eq!(carriers(found.connections[0].carriers), "ring, back kernel");
        assert_eq!(find(&status(), Scope::Connection { link: 3, slot: 1 }), None);
    }
}
