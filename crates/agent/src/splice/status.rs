//! `sidestep splice status`.

use super::args;
use crate::settings;
use serde::Serialize;
use sidestep_ebpf::error::Result;
use sidestep_ebpf::splice::{self, PortRange, Status, meaning};

#[derive(Serialize)]
struct Shown {
    state: &'static str,
    blocking: bool,
    ports: Vec<String>,
    /// Cookies; empty: all.
    network_namespaces: Vec<u64>,
    /// Spliced at present.
    connections: u64,
    messages: u64,
    bytes: u64,
    reasons: Vec<Reason>,
}

#[derive(Serialize)]
struct Reason {
    name: &'static str,
    count: u64,
    meaning: &'static str,
}

impl Shown {
    fn new(status: Status) -> Shown {
        let reason = |(name, count)| Reason { name, count, meaning: meaning(name) };
        Shown {
            state: if status.paused { "paused" } else { "on" },
            blocking: status.blocking,
            ports: status.ports.ranges().iter().map(PortRange::to_string).collect(),
            network_namespaces: status.netns,
            connections: status.connections,
            messages: status.redirected.messages,
            bytes: status.redirected.bytes,
            reasons: status.reasons.into_iter().map(reason).collect(),
        }
    }

    fn print(&self) {
        println!("splicing is {}", self.state);
        println!("ports        {}", self.ports.join(", "));
        println!("connections  {}", self.connections);
        println!("carried      {} bytes in {} messages", self.bytes, self.messages);
        let counted: Vec<_> = self.reasons.iter().filter(|reason| reason.count > 0).collect();
        let width = counted.iter().map(|reason| reason.count.to_string().len()).max().unwrap_or(0);
        for Reason { name, count, meaning } in counted {
            println!("  {count:>width$}  {name}: {meaning}");
        }
    }
}

pub fn print(args: &args::Status) -> Result<()> {
    let status = splice::status(&settings::pins(args.pins.clone()))?;
    match status.map(Shown::new) {
        Some(shown) if args.json => println!("{}", serde_json::to_string_pretty(&shown).expect("it is JSON")),
        Some(shown) => shown.print(),
        None if args.json => println!("{{\n  \"state\": \"off\"\n}}"),
        None => println!("splicing is off: nothing is installed"),
    }
    Ok(())
}
