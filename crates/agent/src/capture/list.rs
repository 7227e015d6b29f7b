//! `sidestep capture --list`: asks the agent, which knows files and problems; without an agent, reads the tables.

use crate::lock;
use sidestep_agent_api::{Answer, Capture, Captures, Count, Question, ask};
use sidestep_ebpf::capture;
use sidestep_ebpf::error::Result;
use sidestep_ebpf::plane::OF_CAPTURE;
use sidestep_ebpf::{netns, services};
use std::collections::BTreeMap;
use std::path::Path;

pub fn print(pins: &Path, socket: &Path, json: bool) -> Result<()> {
    let captures = match ask(socket, &Question::Captures { pins: lock::identity(pins) }) {
        Ok(Answer::Captures(captures)) => captures,
        // No agent, or one with other pins.
        _ => by_tables(pins)?,
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&captures).expect("it is JSON"));
        return Ok(());
    }
    println!("{:<32} {:<24} {:>8} {:>8} {:>9}  STATE", "CAPTURE", "NETNS", "OUTBOUND", "INBOUND", "LISTENERS");
    captures.captures.iter().for_each(print_one);
    for count in captures.reasons.iter().filter(|count| count.count > 0) {
        println!("{:>12} {}", count.count, count.reason);
    }
    Ok(())
}

fn print_one(one: &Capture) {
    let name = if one.name.is_empty() { "-".into() } else { format!("{}/{}", one.namespace, one.name) };
    let state = match (one.captured, one.outbound_listeners, one.inbound_listeners) {
        (false, _, _) => "not captured",
        (true, 0, 0) => "captured; the proxy does not listen",
        (true, 0, _) => "captured; the proxy does not listen for what the pod sends",
        (true, _, 0) => "captured; the proxy does not listen for what the pod receives",
        _ => "captured",
    };
    let listeners = format!("{}+{}", one.outbound_listeners, one.inbound_listeners);
    println!("{name:<32} {:<24} {:>8} {:>8} {listeners:>9}  {state}", one.netns, one.outbound_port, one.inbound_port);
    one.troubles.iter().for_each(|trouble| println!("    {trouble}"));
}

fn by_tables(pins: &Path) -> Result<Captures> {
    let Some(maps) = services::tables(pins)? else { return Ok(Captures::default()) };
    let tables = capture::Captures::open_read_only(pins)?;
    let (names, listening) = (names(), tables.all_listening());
    let pods = tables.pods()?.into_iter().map(|pod| {
        let [outbound_listeners, inbound_listeners] = listening.get(&pod.netns).copied().unwrap_or_default();
        Capture {
            netns: names.get(&pod.netns).cloned().unwrap_or_else(|| "-".into()),
            cookie: Some(pod.netns),
            captured: true,
            outbound_port: pod.outbound_port,
            inbound_port: pod.inbound_port,
            outbound_listeners,
            inbound_listeners,
            ..Capture::default()
        }
    });
    let mut captures: Vec<Capture> = pods.collect();
    captures.sort_by(|a, b| (&a.netns, a.cookie).cmp(&(&b.netns, b.cookie)));
    let reasons = maps.reasons()?.into_iter().filter(|(reason, _)| OF_CAPTURE.contains(reason));
    let reasons = reasons.map(|(reason, count)| Count { reason: reason.into(), count }).collect();
    Ok(Captures { captures, reasons, ..Captures::default() })
}

fn names() -> BTreeMap<u64, String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let cookie = |path: &Path| netns::cookie_of(path).ok();
    entries
        .filter_map(|entry| Some((cookie(&entry.path())?, entry.file_name().to_string_lossy().into_owned())))
        .collect()
}
