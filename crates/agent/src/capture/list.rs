//! `sidestep capture --list`.

use serde::Serialize;
use sidestep_ebpf::capture::Captures;
use sidestep_ebpf::{netns, services};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Serialize)]
struct Row {
    /// The namespace's cookie.
    netns: u64,
    /// In /run/netns.
    name: Option<String>,
    outbound_port: u16,
    inbound_port: u16,
    /// Sockets of the proxy that listen for what comes in.
    listeners: usize,
}

pub fn print(pins: &Path, json: bool) -> Result<(), String> {
    let rows = rows(pins)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?);
        return Ok(());
    }
    println!("{:<20} {:<24} {:>8} {:>8} {:>9}", "NETNS", "NAME", "OUTBOUND", "INBOUND", "LISTENERS");
    for row in rows {
        let name = row.name.as_deref().unwrap_or("-");
        println!("{:<20} {name:<24} {:>8} {:>8} {:>9}", row.netns, row.outbound_port, row.inbound_port, row.listeners);
    }
    Ok(())
}

fn rows(pins: &Path) -> Result<Vec<Row>, String> {
    if services::tables(pins).map_err(|error| error.to_string())?.is_none() {
        return Ok(Vec::new());
    }
    let captures = Captures::look(pins).map_err(|error| error.to_string())?;
    let names = names();
    let pods = captures.pods().map_err(|error| error.to_string())?;
    let mut rows: Vec<Row> = pods
        .into_iter()
        .map(|pod| Row {
            netns: pod.netns,
            name: names.get(&pod.netns).cloned(),
            outbound_port: pod.outbound_port,
            inbound_port: pod.inbound_port,
            listeners: captures.listening(pod.netns),
        })
        .collect();
    rows.sort_by(|a, b| (&a.name, a.netns).cmp(&(&b.name, b.netns)));
    Ok(rows)
}

fn names() -> BTreeMap<u64, String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let cookie = |path: &Path| netns::cookie_of(path).ok();
    entries
        .filter_map(|entry| Some((cookie(&entry.path())?, entry.file_name().to_string_lossy().into_owned())))
        .collect()
}
