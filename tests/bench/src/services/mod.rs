//! A cluster's Services, as the contestants of the lab's scenario `services` read them.

pub mod api;
mod iptables;
mod ipvs;
mod nftables;
mod objects;
mod workload;

use crate::args::Args;
use std::io::Write;
use std::path::Path;
use workload::{Change, Service, services};

/// Prints what `--as` says, or writes one file a Service into a directory.
pub fn run(args: &Args) -> Result<(), String> {
    let format: String = args.required("as")?;
    let all = services(count(args)?);
    let whole = whole(&args.get("whole", "all".to_string())?)?;
    let change: String = args.get("change", "none".into())?;
    let into: String = args.get("into", String::new())?;
    args.finish()?;
    if format == "objects" {
        return files(&all, Path::new(&into));
    }
    let text = match change.as_str() {
        "none" => everything(&format, &all, whole),
        "there" => changed(&format, &all, whole, &Change::there(&all)),
        "back" => changed(&format, &all, whole, &Change::back(&all)),
        other => return Err(format!("--change: '{other}' is none of none, there, back")),
    };
    let text = text.ok_or(format!("--as {format} --change {change}: there is no such thing; see --help"))?;
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| format!("standard output: {e}"))
}

fn everything(format: &str, all: &[Service], whole: fn(&Service) -> bool) -> Option<String> {
    match format {
        "iptables" => Some(iptables::everything(all, whole)),
        "nftables" => Some(nftables::everything(all, whole)),
        "ipvs" => Some(ipvs::everything(all, whole)),
        "addresses" => Some(ipvs::addresses(all)),
        _ => None,
    }
}

fn changed(format: &str, all: &[Service], whole: fn(&Service) -> bool, change: &Change) -> Option<String> {
    match format {
        "iptables" => Some(iptables::change(all, whole, change)),
        "nftables" => Some(nftables::change(change)),
        "ipvs" => Some(ipvs::change(change)),
        "object" => Some(objects::documents(&change.new)),
        "slice" => Some(objects::slice(&change.new).to_string()),
        _ => None,
    }
}

/// Named after their Services.
fn files(all: &[Service], into: &Path) -> Result<(), String> {
    std::fs::create_dir_all(into).map_err(|e| format!("--into {}: {e}", into.display()))?;
    for each in all {
        // The one that changes has a name that does not depend on the number of Services.
        let name = if each.number as usize == all.len() / 2 { "middle" } else { &each.name };
        let path = into.join(format!("{name}.yaml"));
        std::fs::write(&path, objects::documents(each)).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn count(args: &Args) -> Result<u32, String> {
    match args.required("count")? {
        count @ 1..=100_000 => Ok(count),
        other => Err(format!("--count: {other} Services; 1 to 100,000 can be had")),
    }
}

/// Which Services have endpoints: of the others a connection to one of these sees no more than that they are there.
fn whole(text: &str) -> Result<fn(&Service) -> bool, String> {
    match text {
        "all" => Ok(|_| true),
        "dialled" => Ok(|each| each.dialled),
        other => Err(format!("--whole: '{other}' is neither all nor dialled")),
    }
}
