//! `sidestep capture`: captures one pod immediately, without an agent.

mod args;
mod attach;
mod file;
mod list;
mod validate;

use crate::lock::{Held, Lock, LockError};
use crate::settings::{self, NoCgroup};
use args::Args;
use attach::CgroupError;
use clap::Parser;
use sidestep_ebpf::capture::{Captures, passthrough, pod_network};
use sidestep_ebpf::error::{Doing, Error};
use sidestep_ebpf::probe::{self, Missing};
use sidestep_ebpf::{netns, packets, services};
use sidestep_mesh::capture::flags;
use sidestep_mesh::capture::pod::Netns;
use sidestep_mesh::capture::rules::{Rules, WithoutProxy};
use sidestep_mesh::field::Invalid;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use validate::ValidationError;

pub const COMMAND: &str = "capture";

/// Why a pod is not captured, or not released.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("--netns {name}: there is no {}; `ip netns list` names namespaces", path.display())]
    NoNamespace { name: String, path: PathBuf },
    #[error("--netns {name}: {}", path.display())]
    Namespace { name: String, path: PathBuf, source: io::Error },
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Rules(#[from] Invalid),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{0}; it owns the tables: put the file that `sidestep capture --print` writes into its directory")]
    Owned(Held),
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error(transparent)]
    Mount(#[from] NoCgroup),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("SO_NETNS_COOKIE")]
    Cookie(#[source] io::Error),
    #[error(
        "{}: its tables are of another version: `sidestep agent --detach` removes them, and then every pod is to be \
         captured anew",
        .0.display()
    )]
    OtherVersion(PathBuf),
    #[error(transparent)]
    Programs(#[from] Error),
    #[error(transparent)]
    Validation(#[from] ValidationError),
}

pub fn run(words: impl Iterator<Item = OsString>) -> Result<(), CommandError> {
    let args = Args::parse_from(words);
    let pins = settings::pins(args.pins.clone());
    if args.list || args.action.is_some() {
        return Ok(list::print(&pins, &args.socket, args.json)?);
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

/// The addresses by which others know the pod; empty if the namespace does not exist yet.
fn addresses(namespace: &Path) -> BTreeSet<IpAddr> {
    let mut found = pod_network::read(namespace).map(|network| network.addresses).unwrap_or_default();
    found.retain(|ip| !ip.is_loopback() && !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()));
    found
}

/// The file of the namespace.
fn namespace(name: &str) -> Result<PathBuf, CommandError> {
    let named = match name.parse() {
        Ok(pid) => Netns::Pid(pid),
        Err(_) if name.contains('/') => Netns::Path(name.into()),
        Err(_) => Netns::Name(name.into()),
    };
    let path = named.path();
    match path.try_exists() {
        Ok(true) => Ok(path),
        Ok(false) => Err(CommandError::NoNamespace { name: name.into(), path }),
        Err(source) => Err(CommandError::Namespace { name: name.into(), path, source }),
    }
}

fn rules(args: &Args, name: &str) -> Result<Rules, CommandError> {
    // A namespace with a name of ip-netns(8) may have a resolv.conf of its own.
    let own = Path::new("/etc/netns").join(name).join("resolv.conf");
    let resolv_conf = std::fs::read_to_string(own).or_else(|_| std::fs::read_to_string("/etc/resolv.conf"));
    let context = flags::FlagContext {
        resolv_conf: &resolv_conf.unwrap_or_default(),
        user: &|name| number_in("/etc/passwd", name),
        group: &|name| number_in("/etc/group", name),
    };
    let without_proxy = if args.pass_without_proxy { WithoutProxy::Pass } else { WithoutProxy::Refuse };
    Ok(args.flags().rules(&context, without_proxy)?)
}

/// The number of a name in passwd(5) or group(5), where it is the third field.
fn number_in(file: &str, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|fields| fields.first() == Some(&name))?.get(2)?.parse().ok()
}

fn alone(pins: &Path) -> Result<Lock, CommandError> {
    Lock::acquire(pins)?.ok_or_else(|| CommandError::Owned(Held::new(pins)))
}

fn capture(args: &Args, pins: &Path, namespace: &Path, rules: &Rules) -> Result<(), CommandError> {
    Missing::check([probe::missing(), probe::missing_for_capture()].concat())?;
    let _alone = alone(pins)?;
    let wanted = args.cgroup.clone().map_or_else(settings::cgroup_mount, Ok)?;
    let put = || -> Result<(), Error> {
        let mut captures = Captures::open(pins)?;
        let cookie = netns::cookie_of(namespace).doing(namespace.display().to_string())?;
        captures.put(namespace, cookie, rules, &pod_network::read(namespace)?)?;
        captures.sweep()
    };
    let cgroup = attach::cover(pins, &wanted)?;
    check_version(pins)?;
    let node_netns = netns::cookie().map_err(CommandError::Cookie)?;
    let options = services::Options { pins: pins.into(), cgroup, node_netns, watch: false };
    // The pod's entries are written before programs are attached; programs of another version are exchanged.
    services::install(&options, |_| put()).and_then(|()| packets::install(&options))?;
    if args.run_validation { validated(args, pins, namespace, rules) } else { Ok(()) }
}

fn validated(args: &Args, pins: &Path, namespace: &Path, rules: &Rules) -> Result<(), CommandError> {
    let (cookie, network) = pod_network::read_named(namespace)?;
    let cgroup = args.cgroup.clone().map_or_else(settings::cgroup_mount, Ok)?;
    Ok(validate::run(&validate::Pod { pins, namespace, cookie, cgroup: &cgroup, rules, network: &network })?)
}

/// Refuses tables of another version: replacing them would end the capture of other pods.
fn check_version(pins: &Path) -> Result<(), CommandError> {
    let is_other = services::attached_to(pins).is_some() && services::tables(pins)?.is_none();
    if is_other { Err(CommandError::OtherVersion(pins.into())) } else { Ok(()) }
}

/// With the last pod everything is removed, unless the programs also balance Services.
fn remove(pins: &Path, namespace: &Path) -> Result<(), CommandError> {
    let _alone = alone(pins)?;
    let Some(maps) = services::tables(pins)? else { return remove_address(namespace) };
    let cookie = netns::cookie_of(namespace).map_err(|source| CommandError::File { path: namespace.into(), source })?;
    let mut captures = Captures::open(pins)?;
    captures.remove(cookie).and_then(|()| captures.sweep())?;
    let is_last = captures.pods()?.is_empty() && maps.frontends()?.is_empty();
    if is_last {
        services::remove(pins)?;
        let _ = std::fs::remove_dir(pins); // fails if another kind of programs has pins there
    }
    remove_address(namespace)
}

/// How long to wait for the end of the proxy's connections from ::6.
const PATIENCE: Duration = Duration::from_secs(2);

fn remove_address(namespace: &Path) -> Result<(), CommandError> {
    let deadline = Instant::now() + PATIENCE;
    while !passthrough::remove(namespace)? {
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
