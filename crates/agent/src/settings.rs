//! Settings: from options, else from the file, else defaults.

pub use crate::args::Remedy;

use crate::args::Args;
use ipnet::IpNet;
use serde::Deserialize;
use sidestep_agent_api::DEFAULT_SOCKET;
use sidestep_ebpf::pins::BPFFS;
use sidestep_ebpf::services::Options;
use sidestep_mesh::capture::pod::Netns;
use sidestep_mesh::field::Invalid;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Settings {
    pub source: SourceSettings,
    /// The directory of captures and policies, with an API server.
    pub captures: Option<PathBuf>,
    /// Where admitted pods are kept, with an API server. None: no pods are admitted.
    pub admissions: Option<PathBuf>,
    /// The node's directory of network namespaces, which is at /run/netns here.
    pub host_netns: PathBuf,
    /// Where the names of namespaces are written that are enrolled for rings, with an API server.
    pub rings_namespaces: Option<PathBuf>,
    /// The plugin's file about containers that do not use rings, with an API server.
    pub rings_events: Option<PathBuf>,
    /// What is done about pods that were not admitted. None: nothing.
    pub repair: Option<RepairSettings>,
    /// Remove the node's taint when the agent is ready.
    pub remove_taint: bool,
    pub node_name: String,
    pub zone: Option<String>,
    pub cgroup: PathBuf,
    pub pins: PathBuf,
    pub socket: PathBuf,
    pub metrics: Option<SocketAddr>,
    /// Services are read from the source, and balanced.
    pub services: bool,
    pub node_port_addresses: Vec<IpNet>,
    /// Count connections for each pair of pods and each Service.
    pub watch: bool,
    /// Arm the node: namespaces that are not admitted may communicate with nobody.
    pub arm: bool,
    /// Namespaces that are admitted without a document.
    pub exempt: Vec<Netns>,
    /// Answer at healthCheckNodePorts.
    pub health_check_node_ports: bool,
    /// Packets to Services are translated, too: no kube-proxy is needed.
    pub replace_kube_proxy: bool,
    /// Networks of the pods of all nodes.
    pub cluster_cidr: Vec<IpNet>,
    /// NetworkPolicies of the API server are enforced.
    pub network_policies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairSettings {
    pub remedy: Remedy,
    /// How long a pod may run without having been admitted.
    pub after: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceSettings {
    Directory(PathBuf),
    Kubeconfig(PathBuf),
    InCluster,
}

const DEFAULT_REPAIR_AFTER: u64 = 60;
const DEFAULT_HOST_NETNS: &str = "/run/netns";
const DEFAULT_METRICS: &str = "127.0.0.1:9464";

/// The file of `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct File {
    directory: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    in_cluster: bool,
    captures: Option<PathBuf>,
    admissions: Option<PathBuf>,
    host_netns: Option<PathBuf>,
    rings_namespaces: Option<PathBuf>,
    rings_events: Option<PathBuf>,
    repair: Option<Remedy>,
    repair_after: Option<u64>,
    remove_taint: bool,
    node_name: Option<String>,
    zone: Option<String>,
    cgroup: Option<PathBuf>,
    pins: Option<PathBuf>,
    metrics: Option<String>,
    socket: Option<PathBuf>,
    no_services: bool,
    node_port_addresses: Vec<IpNet>,
    watch: bool,
    arm: bool,
    exempt: Vec<String>,
    network_policies: bool,
    health_check_node_ports: bool,
    replace_kube_proxy: bool,
    cluster_cidr: Vec<IpNet>,
}

/// Why settings are invalid or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{}: cannot read it", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{}", file.display())]
    Parse { file: PathBuf, source: toml::de::Error },
    #[error("--config {}: Services come from this directory or from an API server, not from both", .0.display())]
    TwoSources(PathBuf),
    #[error("--config FILE: exactly one of directory, kubeconfig and in-cluster says where Services come from")]
    NoSource,
    #[error(
        "captures {}: Captures come from the directory {} as Services do: put them there",
        captures.display(),
        directory.display()
    )]
    TwoDirectories { captures: PathBuf, directory: PathBuf },
    #[error(
        "admissions {}: pods are read from an API server: name it by --kubeconfig or --in-cluster instead of a directory",
        .0.display()
    )]
    NoPods(PathBuf),
    #[error("admissions and captures: {} cannot be both: admitted pods are kept in a directory of their own", .0.display())]
    SameDirectory(PathBuf),
    #[error("{0}: needs an API server: name it by --kubeconfig or --in-cluster instead of a directory")]
    NoCluster(&'static str),
    #[error(
        "no-services: without Services there is nothing to serve: leave out replace-kube-proxy, health-check-node-ports and node-port-addresses"
    )]
    NothingToServe,
    #[error("repair: only pods that are admitted can be told from others: name a directory by --admissions")]
    NoAdmissions,
    #[error("repair-after: expected 1 to 3600 seconds, found {0}")]
    RepairAfter(u64),
    #[error("exempt")]
    Exempt(#[source] Invalid),
    #[error("metrics: expected ADDRESS:PORT or off, found {0:?}")]
    Metrics(String),
    #[error("the host name is not UTF-8: name this node by --node-name")]
    HostName,
    #[error(transparent)]
    Cgroup(#[from] NoCgroup),
}

#[derive(Debug, thiserror::Error)]
#[error("cgroup v2 is not mounted: mount it, or name a directory of it by --cgroup")]
pub struct NoCgroup;

impl File {
    /// What `--config` names: settings, or a directory of Services.
    fn of(args: &Args) -> Result<File, SettingsError> {
        match &args.config {
            Some(path) if path.is_dir() => Ok(File { directory: Some(path.clone()), ..File::default() }),
            Some(path) => File::load(path),
            None => Ok(File::default()),
        }
    }

    fn load(path: &Path) -> Result<File, SettingsError> {
        let file = || path.to_path_buf();
        let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read { file: file(), source })?;
        toml::from_str(&text).map_err(|source| SettingsError::Parse { file: file(), source })
    }
}

impl Settings {
    pub fn new(args: &Args) -> Result<Settings, SettingsError> {
        let has_server = args.kubeconfig.is_some() || args.in_cluster;
        if let Some(path) = args.config.as_ref().filter(|path| has_server && path.is_dir()) {
            return Err(SettingsError::TwoSources(path.clone()));
        }
        let file = File::of(args)?;
        let ranges =
            if args.node_port_addresses.is_empty() { &file.node_port_addresses } else { &args.node_port_addresses };
        let (source, captures) = (source(args, &file)?, args.captures.clone().or(file.captures));
        if let (SourceSettings::Directory(path), Some(other)) = (&source, &captures) {
            return Err(SettingsError::TwoDirectories { captures: other.clone(), directory: path.clone() });
        }
        let with_cluster = |name, given| with_cluster(name, given, &source);
        let rings_namespaces =
            with_cluster("rings-namespaces", args.rings_namespaces.clone().or(file.rings_namespaces))?;
        let rings_events = with_cluster("rings-events", args.rings_events.clone().or(file.rings_events))?;
        let admissions = admissions(args.admissions.clone().or(file.admissions), &source, captures.as_deref())?;
        let repair = repair(args.repair.or(file.repair), args.repair_after.or(file.repair_after), &admissions)?;
        let remove_taint = with_cluster_flag("remove-taint", args.remove_taint || file.remove_taint, &source)?;
        let replaces = args.replace_kube_proxy || file.replace_kube_proxy;
        let health_check_node_ports = args.health_check_node_ports || file.health_check_node_ports || replaces;
        let no_services = with_cluster_flag("no-services", args.no_services || file.no_services, &source)?;
        if no_services && (health_check_node_ports || !ranges.is_empty()) {
            return Err(SettingsError::NothingToServe);
        }
        Ok(Settings {
            source,
            captures,
            admissions,
            host_netns: args.host_netns.clone().or(file.host_netns).unwrap_or_else(|| DEFAULT_HOST_NETNS.into()),
            rings_namespaces,
            rings_events,
            repair,
            remove_taint,
            node_name: args.node_name.clone().or(file.node_name).map_or_else(host_name, Ok)?,
            zone: args.zone.clone().or(file.zone),
            cgroup: args.cgroup.clone().or(file.cgroup).map_or_else(cgroup_mount, Ok)?,
            pins: pins(args.pins.clone().or(file.pins)),
            socket: socket(args.socket.clone().or(file.socket)),
            metrics: metrics(args.metrics.as_deref().or(file.metrics.as_deref()).unwrap_or(DEFAULT_METRICS))?,
            services: !no_services,
            node_port_addresses: ranges.clone(),
            watch: args.watch || file.watch,
            arm: args.arm || file.arm,
            exempt: exempt(if args.exempt.is_empty() { &file.exempt } else { &args.exempt })?,
            network_policies: args.network_policies || file.network_policies,
            health_check_node_ports,
            replace_kube_proxy: replaces,
            cluster_cidr: if args.cluster_cidr.is_empty() { file.cluster_cidr } else { args.cluster_cidr.clone() },
        })
    }
}

impl Settings {
    /// Names of settings that differ and that a running agent cannot change.
    pub fn fixed_differences(&self, other: &Settings) -> Vec<&'static str> {
        let differences = [
            ("source of Services", self.source != other.source),
            ("captures", self.captures != other.captures),
            ("admissions", self.admissions != other.admissions),
            ("host-netns", self.host_netns != other.host_netns),
            ("rings-namespaces", self.rings_namespaces != other.rings_namespaces),
            ("rings-events", self.rings_events != other.rings_events),
            ("repair", self.repair != other.repair),
            ("remove-taint", self.remove_taint != other.remove_taint),
            ("node-name", self.node_name != other.node_name),
            ("cgroup", self.cgroup != other.cgroup),
            ("pins", self.pins != other.pins),
            ("socket", self.socket != other.socket),
            ("metrics", self.metrics != other.metrics),
            ("no-services", self.services != other.services),
            ("watch", self.watch != other.watch),
            ("arm", self.arm != other.arm),
            ("exempt", self.exempt != other.exempt),
            ("health-check-node-ports", self.health_check_node_ports != other.health_check_node_ports),
            ("replace-kube-proxy", self.replace_kube_proxy != other.replace_kube_proxy),
            ("cluster-cidr", self.cluster_cidr != other.cluster_cidr),
            ("network-policies", self.network_policies != other.network_policies),
            // Whether the zone is read from the API server's Node.
            ("zone", self.zone.is_some() != other.zone.is_some()),
        ];
        differences.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
    }

    /// Options for installing programs. `node`: the cookie of this node's own namespace.
    pub fn options(&self, node: u64) -> Options {
        let (pins, cgroup) = (self.pins.clone(), self.cgroup.clone());
        Options { pins, cgroup, node_netns: node, watch: self.watch }
    }
}

/// The pins and the socket, for `--detach`: those of the agent with the same options.
pub fn places(args: &Args) -> Result<(PathBuf, PathBuf), SettingsError> {
    let file = File::of(args)?;
    Ok((pins(args.pins.clone().or(file.pins)), socket(args.socket.clone().or(file.socket))))
}

pub fn pins(given: Option<PathBuf>) -> PathBuf {
    given.unwrap_or_else(|| Path::new(BPFFS).join("sidestep"))
}

fn socket(given: Option<PathBuf>) -> PathBuf {
    given.unwrap_or_else(|| DEFAULT_SOCKET.into())
}

/// Options take precedence over the whole file; two sources in the same place are an error.
fn source(args: &Args, file: &File) -> Result<SourceSettings, SettingsError> {
    if let Some(path) = &args.kubeconfig {
        return Ok(SourceSettings::Kubeconfig(path.clone()));
    }
    if args.in_cluster {
        return Ok(SourceSettings::InCluster);
    }
    match (&file.directory, &file.kubeconfig, file.in_cluster) {
        (Some(path), None, false) => Ok(SourceSettings::Directory(path.clone())),
        (None, Some(path), false) => Ok(SourceSettings::Kubeconfig(path.clone())),
        (None, None, true) => Ok(SourceSettings::InCluster),
        _ => Err(SettingsError::NoSource),
    }
}

fn admissions(
    given: Option<PathBuf>,
    source: &SourceSettings,
    captures: Option<&Path>,
) -> Result<Option<PathBuf>, SettingsError> {
    match given {
        Some(path) if matches!(source, SourceSettings::Directory(_)) => Err(SettingsError::NoPods(path)),
        Some(path) if captures == Some(&path) => Err(SettingsError::SameDirectory(path)),
        given => Ok(given),
    }
}

/// What makes no sense without an API server.
fn with_cluster<T>(name: &'static str, given: Option<T>, source: &SourceSettings) -> Result<Option<T>, SettingsError> {
    if given.is_some() && matches!(source, SourceSettings::Directory(_)) {
        return Err(SettingsError::NoCluster(name));
    }
    Ok(given)
}

fn with_cluster_flag(name: &'static str, given: bool, source: &SourceSettings) -> Result<bool, SettingsError> {
    Ok(with_cluster(name, given.then_some(()), source)?.is_some())
}

fn repair(
    remedy: Option<Remedy>,
    after: Option<u64>,
    admissions: &Option<PathBuf>,
) -> Result<Option<RepairSettings>, SettingsError> {
    let after = after.unwrap_or(DEFAULT_REPAIR_AFTER);
    if !(1..=3600).contains(&after) {
        return Err(SettingsError::RepairAfter(after));
    }
    match remedy {
        Some(_) if admissions.is_none() => Err(SettingsError::NoAdmissions),
        remedy => Ok(remedy.map(|remedy| RepairSettings { remedy, after: Duration::from_secs(after) })),
    }
}

fn exempt(texts: &[String]) -> Result<Vec<Netns>, SettingsError> {
    texts.iter().map(|text| Netns::read(text).map_err(SettingsError::Exempt)).collect()
}

fn metrics(text: &str) -> Result<Option<SocketAddr>, SettingsError> {
    if text == "off" {
        return Ok(None);
    }
    sidestep_http::address(text).map(Some).map_err(|_| SettingsError::Metrics(text.into()))
}

/// The default name that the kubelet gives a node.
fn host_name() -> Result<String, SettingsError> {
    let name = rustix::system::uname().nodename().to_str().map(str::to_lowercase);
    name.map_err(|_| SettingsError::HostName)
}

/// The first mount of type cgroup2.
pub fn cgroup_mount() -> Result<PathBuf, NoCgroup> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = fields.filter(|f| f.get(2) == Some(&"cgroup2")).find_map(|f| f.get(1).map(PathBuf::from));
    let found = found.ok_or(NoCgroup)?;
    if let Some(warning) = warning(&found) {
        tracing::warn!("{warning}");
    }
    Ok(found)
}

/// A container with a cgroup namespace of its own sees only its part of the hierarchy mounted. The reliable sign is cgroup.type,
/// which only the hierarchy's root lacks; /proc's mounts and namespaces can look the same.
fn warning(mount: &Path) -> Option<String> {
    let is_part = mount.join("cgroup.type").exists();
    let at = mount.display();
    is_part.then(|| {
        format!(
            "{at} is not the root of cgroup v2: only processes of this container or below are balanced; \
             name the node's own mount by --cgroup to balance all"
        )
    })
}

#[cfg(test)]
mod tests;
