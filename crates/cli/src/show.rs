//! `sidestep status`.

use crate::Failure;
use crate::args;
use crate::metrics;
use crate::output;
use crate::reasons::meaning;
use crate::serve;
use crate::table::{Table, bytes, printable};
use sidestep_broker::client::{ClientError, Operator};
use sidestep_broker::listen::Address;
use sidestep_broker::status::{Connection, Counts, Direction, Link, Process, Reasons, Stack, Status, Strangers};
use std::process::ExitCode;
use std::sync::Arc;

pub fn status(args: &args::Status) -> Result<ExitCode, Failure> {
    if let Some(at) = args.serve {
        let broker = args.broker.address();
        let metrics = move || ask(&broker).map(|status| metrics::text(&status));
        serve::serve(at, Arc::new(metrics)).map_err(Failure::new)?;
    }
    let status = ask(&args.broker.address()).map_err(Failure::new)?;
    if args.json {
        output::line(serde_json::to_string_pretty(&status).map_err(Failure::new)?);
    } else if args.metrics {
        output::print(metrics::text(&status));
    } else {
        output::print(text(&status));
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(broker: &Address) -> Result<Status, ClientError> {
    Operator::connect(broker)?.status()
}

fn text(status: &Status) -> String {
    let Status { address, pid, uid, version, waiting_offers, .. } = status;
    let mut out = format!("Broker {}, pid {pid}, user {uid}, protocol {version}", printable(address));
    out += &format!("; {waiting_offers} connections wait for their other end\n");
    if status.hold {
        out += "Everything is detached, programs that start now too (`sidestep attach --all` ends that)\n";
    }
    out += &stack(&status.stack);
    let Counts { processes: all_processes, links: all_links, connections: all_connections, .. } = status.counted();
    out += &section("Processes", processes(&status.processes), status.processes.len(), all_processes);
    out += &section("Links", links(&status.links), status.links.len(), all_links);
    out += &section("Connections", connections(&status.connections), status.connections.len(), all_connections);
    let kinds = status.reasons.len();
    out += &section("Stayed on the kernel, or went back to it", reasons(&status.reasons), kinds, kinds as u64);
    out += &strangers(&status.strangers, status.pid);
    out
}

/// What the operator can write so that users share memory: one line for all, since a file has each key once.
fn strangers(pairs: &[Strangers], broker: u32) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let told = |Strangers { uids: [one, other], connections }: &Strangers| {
        format!(
            "\n{connections} connections between the users {one} and {other} stayed on the kernel, since these may not share memory."
        )
    };
    let rule = |Strangers { uids: [one, other], .. }: &Strangers| format!("{{uids = [{one}, {other}]}}");
    let rules: Vec<_> = pairs.iter().map(rule).collect();
    format!(
        "{}\nIf they are to, write the line `allow = [{}]` into /etc/sidestep/config.toml, and `kill -HUP {broker}`\n",
        pairs.iter().map(told).collect::<String>(),
        rules.join(", ")
    )
}

/// Nothing where there has been none.
fn stack(stack: &Stack) -> String {
    let Stack { pid, carries, totals: t, .. } = stack;
    let (taken, given_back) = (t.upgraded, t.returned);
    let so_far = format!(
        "has taken connections {taken} times, and given them back {given_back} times; {} bytes to other hosts, {} from them",
        bytes(t.ring_rx),
        bytes(t.ring_tx)
    );
    match pid {
        Some(pid) => format!("Stack: pid {pid}, carries {carries} connections; it {so_far}\n"),
        None if t.seen > 0 => format!("Stack: none now; it {so_far}\n"),
        None => String::new(),
    }
}

/// `listed` of `all` are in the table.
fn section(title: &str, table: Table, listed: usize, all: u64) -> String {
    match all.saturating_sub(listed as u64) {
        0 if listed == 0 => format!("\n{title}: none\n"),
        0 => format!("\n{title}\n{table}"),
        more => format!("\n{title}\n{table}and {more} more\n"),
    }
}

fn processes(list: &[Process]) -> Table {
    let mut table = Table::new(&[
        ">PID",
        ">USER",
        ">SEEN",
        ">UPGRADED",
        ">RETURNED",
        ">RING IN",
        ">RING OUT",
        ">KERNEL IN",
        ">KERNEL OUT",
        "STATE",
        "PROGRAM",
    ]);
    for p in list {
        let t = &p.totals;
        table.row([
            p.pid.to_string(),
            p.uid.to_string(),
            t.seen.to_string(),
            t.upgraded.to_string(),
            t.returned.to_string(),
            bytes(t.ring_rx),
            bytes(t.ring_tx),
            bytes(t.kernel_rx),
            bytes(t.kernel_tx),
            process_state(p),
            p.exe.clone(),
        ]);
    }
    table
}

fn links(list: &[Link]) -> Table {
    let mut table = Table::new(&[">LINK", ">PID", ">PID", ">CONNECTIONS", ">RING SIZE", ">MEMORY"]);
    for link in list {
        table.row([
            link.id.to_string(),
            link.pids[0].to_string(),
            link.pids[1].to_string(),
            link.slots_used.to_string(),
            bytes(link.ring_size),
            bytes(link.memory_bytes),
        ]);
    }
    table
}

/// One row for each direction; the columns of the connection itself are only in the first one.
fn connections(list: &[Connection]) -> Table {
    let mut table =
        Table::new(&["NAME", "LOCAL", "REMOTE", "STATE", ">FROM", ">TO", "CARRIER", ">RING", ">KERNEL", "LAST REASON"]);
    for c in list {
        let own = [c.id.clone(), c.local.clone(), c.remote.clone(), state(c.hold)];
        table.row(own.into_iter().chain(direction(&c.directions[0])));
        table.row(std::iter::repeat_n(String::new(), 4).chain(direction(&c.directions[1])));
    }
    table
}

fn direction(d: &Direction) -> [String; 6] {
    [
        d.from_pid.to_string(),
        d.to_pid.to_string(),
        d.carrier.to_string(),
        bytes(d.ring_bytes),
        bytes(d.kernel_bytes),
        d.reason.clone().unwrap_or_default(),
    ]
}

fn reasons(counts: &Reasons) -> Table {
    let mut table = Table::new(&["REASON", ">COUNT", "MEANING"]);
    for (name, count) in counts {
        table.row([name.clone(), count.to_string(), meaning(name).into()]);
    }
    table
}

/// Connections of earlier brokers are in no other table.
fn process_state(process: &Process) -> String {
    let earlier = match process.earlier_connections {
        0 => String::new(),
        1 => "1 connection of an earlier broker".into(),
        n => format!("{n} connections of earlier brokers"),
    };
    let both = [state(process.hold), earlier];
    both.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn state(hold: bool) -> String {
    if hold { "detached".into() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_broker::config::Config;

    #[test]
    fn what_is_not_listed_is_counted() {
        let counts = Counts { processes: 2, ..Counts::default() };
        let mut status = Status { processes: vec![Process::default(); 2], counts: Some(counts), ..Status::default() };
        assert!(!text(&status).contains("more"), "{}", text(&status));
        status.counts = Some(Counts { processes: 7, ..Counts::default() });
        assert!(text(&status).contains("\nand 5 more\n"), "{}", text(&status));
    }

    #[test]
    fn connections_of_earlier_brokers_are_the_process_s_state() {
        let told =
            |hold, earlier_connections| process_state(&Process { hold, earlier_connections, ..Process::default() });
        assert_eq!((told(false, 0), told(true, 0)), (String::new(), "detached".into()));
        assert_eq!(told(false, 1), "1 connection of an earlier broker");
        assert_eq!(told(true, 3), "detached, 3 connections of earlier brokers");
    }

    /// A file with two lines `allow = ...` would be an error.
    #[test]
    fn one_line_is_enough_for_all_strangers() {
        let pair = |uids, connections| Strangers { uids, connections };
        assert_eq!(strangers(&[], 7), "");
        let said = strangers(&[pair([0, 33], 4), pair([33, 1000], 1)], 7);
        let expected = "\n4 connections between the users 0 and 33 stayed on the kernel, since these may not share memory.\
             \n1 connections between the users 33 and 1000 stayed on the kernel, since these may not share memory.\
             \nIf they are to, write the line `allow = [{uids = [0, 33]}, {uids = [33, 1000]}]` into /etc/sidestep/config.toml, \
             and `kill -HUP 7`\n";
        assert_eq!(said, expected);
        let line = said.split('`').find(|part| part.starts_with("allow")).expect("a line");
        let config = Config::parse(line, "f", &|_, _| Ok(None)).expect("a valid file");
        assert_eq!(config.rules.allow.iter().map(|rule| rule.uids.clone()).collect::<Vec<_>>(), [[0, 33], [33, 1000]]);
    }

    #[test]
    fn a_broker_s_address_commands_no_terminal() {
        let status = Status { address: "@a\x1b[2J".into(), ..Status::default() };
        assert!(text(&status).starts_with("Broker @a?[2J, pid"), "{}", text(&status));
    }
}
