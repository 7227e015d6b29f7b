//! `sidestep capture`: one pod, at once, without an agent.

mod args;
mod attach;
mod file;
mod list;
mod validate;

use crate::lock::{self, Lock};
use crate::settings;
use args::Args;
use clap::Parser;
use sidestep_ebpf::capture::{Captures, passthrough, place};
use sidestep_ebpf::error::Error;
use sidestep_ebpf::{netns, packets, probe, services};
use sidestep_mesh::capture::flags;
use sidestep_mesh::capture::rules::{Rules, WithoutProxy};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const COMMAND: &str = "capture";

pub fn run(words: impl Iterator<Item = OsString>) -> Result<(), String> {
    let args = Args::parse_from(words);
    let pins = settings::pins(args.pins.clone());
    if args.list || args.action.is_some() {
        return list::print(&pins, &args.socket, args.json);
    }
    let name = args.netns.as_deref().unwrap_or_default();
    let namespace = namespace(name)?;
    if args.remove {
        return remove(&pins, &namespace);
    }
    let rules = rules(&args, name)?;
    if args.print {
        print!("{}", file::of(&args, name, &rules, &addresses(&namespace)));
        return Ok(());
    }
    capture(&args, &pins, &namespace, &rules)
}

/// By which others know the pod. None of a namespace that is not there yet.
fn addresses(namespace: &Path) -> BTreeSet<IpAddr> {
    let mut found = place::look(namespace).map(|place| place.addresses).unwrap_or_default();
    found.retain(|ip| !ip.is_loopback() && !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()));
    found
}

/// Where the namespace is found.
fn namespace(name: &str) -> Result<PathBuf, String> {
    let path = match name.parse::<u32>() {
        Ok(pid) => Path::new("/proc").join(pid.to_string()).join("ns/net"),
        Err(_) if name.contains('/') => PathBuf::from(name),
        Err(_) => Path::new("/run/netns").join(name),
    };
    match path.try_exists() {
        Ok(true) => Ok(path),
        Ok(false) => Err(format!("--netns {name}: there is no {}; `ip netns list` names namespaces", path.display())),
        Err(error) => Err(format!("--netns {name}: {}: {error}", path.display())),
    }
}

fn rules(args: &Args, name: &str) -> Result<Rules, String> {
    // A namespace that ip-netns(8) has named may have a resolv.conf of its own.
    let own = Path::new("/etc/netns").join(name).join("resolv.conf");
    let resolv_conf = std::fs::read_to_string(own).or_else(|_| std::fs::read_to_string("/etc/resolv.conf"));
    let place = flags::Place {
        resolv_conf: &resolv_conf.unwrap_or_default(),
        user: &|name| number_in("/etc/passwd", name),
        group: &|name| number_in("/etc/group", name),
    };
    let without_proxy = if args.pass_without_proxy { WithoutProxy::Pass } else { WithoutProxy::Refuse };
    args.flags().rules(&place, without_proxy).map_err(|wrong| wrong.to_string())
}

/// passwd(5) and group(5) have the number in the third field.
fn number_in(file: &str, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|fields| fields.first() == Some(&name))?.get(2)?.parse().ok()
}

fn alone(pins: &Path) -> Result<Lock, String> {
    Lock::take(pins)?.ok_or_else(|| {
        format!(
            "{}; it owns the tables: put the file that `sidestep capture --print` writes into its directory",
            lock::held(pins)
        )
    })
}

fn capture(args: &Args, pins: &Path, namespace: &Path, rules: &Rules) -> Result<(), String> {
    let missing = [probe::missing(), probe::missing_for_capture()].concat();
    if !missing.is_empty() {
        return Err(missing.join("; "));
    }
    let _alone = alone(pins)?;
    let wanted = args.cgroup.clone().map_or_else(settings::cgroup_mount, Ok)?;
    let put = || -> Result<(), Error> {
        let mut captures = Captures::open(pins)?;
        let cookie = netns::cookie_of(namespace).map_err(|error| Error::new(namespace.display().to_string(), error))?;
        captures.put(namespace, cookie, rules, &place::look(namespace)?)?;
        captures.sweep()
    };
    let cgroup = attach::cover(pins, &wanted)?;
    check_version(pins)?;
    let node_netns = netns::cookie().map_err(|error| format!("SO_NETNS_COOKIE: {error}"))?;
    let options = services::Options { pins: pins.into(), cgroup, node_netns, watch: false };
    // Nothing is captured before everything is in the tables; programs of another version are exchanged.
    let install = services::install(&options, |_| put()).and_then(|()| packets::install(&options));
    install.map_err(|error| error.to_string())?;
    if args.run_validation { validated(args, pins, namespace, rules) } else { Ok(()) }
}

fn validated(args: &Args, pins: &Path, namespace: &Path, rules: &Rules) -> Result<(), String> {
    let (cookie, place) = place::look_and_name(namespace).map_err(|error| error.to_string())?;
    let cgroup = args.cgroup.clone().map_or_else(settings::cgroup_mount, Ok)?;
    validate::run(&validate::Pod { pins, namespace, cookie, cgroup: &cgroup, rules, place: &place })
}

/// Tables of another version are not taken over: with them would go the other pods that are captured.
fn check_version(pins: &Path) -> Result<(), String> {
    let is_other =
        services::attached_to(pins).is_some() && services::tables(pins).map_err(|error| error.to_string())?.is_none();
    if !is_other {
        return Ok(());
    }
    Err(format!(
        "{}: its tables are of another version: `sidestep agent --detach` removes them, and then every pod is to be \
         captured anew",
        pins.display()
    ))
}

/// With the last pod everything goes, unless Services are balanced.
fn remove(pins: &Path, namespace: &Path) -> Result<(), String> {
    let _alone = alone(pins)?;
    let told = |error: Error| error.to_string();
    let Some(maps) = services::tables(pins).map_err(told)? else { return remove_address(namespace) };
    let cookie = netns::cookie_of(namespace).map_err(|error| format!("{}: {error}", namespace.display()))?;
    let mut captures = Captures::open(pins).map_err(told)?;
    captures.remove(cookie).and_then(|()| captures.sweep()).map_err(told)?;
    let is_last = captures.pods().map_err(told)?.is_empty() && maps.frontends().map_err(told)?.is_empty();
    if is_last {
        services::remove(pins).map_err(told)?;
        let _ = std::fs::remove_dir(pins); // another kind of programs may have pins there
    }
    remove_address(namespace)
}

/// Connections that the proxy has from it may be about to end.
const PATIENCE: Duration = Duration::from_secs(2);

fn remove_address(namespace: &Path) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !passthrough::remove(namespace).map_err(|error| error.to_string())? {
        if Instant::now() > deadline {
            eprintln!(
                "{}: ::6 stays on the loopback: connections that its proxy has taken use it; give the command again when \
                 they have ended",
                namespace.display()
            );
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
