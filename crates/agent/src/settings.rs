//! Settings: from options, else from the file, else defaults.

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

#[derive(Clone, Debug)]
pub struct Settings {
    pub source: SourceSettings,
    /// The directory of captures and policies, with an API server.
    pub captures: Option<PathBuf>,
    /// Where admitted pods are kept, with an API server. None: no pods are admitted.
    pub admissions: Option<PathBuf>,
    pub node_name: String,
    pub zone: Option<String>,
    pub cgroup: PathBuf,
    pub pins: PathBuf,
    pub socket: PathBuf,
    pub metrics: Option<SocketAddr>,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceSettings {
    Directory(PathBuf),
    Kubeconfig(PathBuf),
    InCluster,
}

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
    node_name: Option<String>,
    zone: Option<String>,
    cgroup: Option<PathBuf>,
    pins: Option<PathBuf>,
    metrics: Option<String>,
    socket: Option<PathBuf>,
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
    fn load(path: &Path) -> Result<File, SettingsError> {
        let file = || path.to_path_buf();
        let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read { file: file(), source })?;
        toml::from_str(&text).map_err(|source| SettingsError::Parse { file: file(), source })
    }
}

impl Settings {
    pub fn new(args: &Args) -> Result<Settings, SettingsError> {
        let directory = args.config.clone().filter(|path| path.is_dir());
        if let Some(path) = directory.as_ref().filter(|_| args.kubeconfig.is_some() || args.in_cluster) {
            return Err(SettingsError::TwoSources(path.clone()));
        }
        let file = match &args.config {
            Some(path) if directory.is_none() => File::load(path)?,
            _ => File { directory, ..File::default() },
        };
        let ranges =
            if args.node_port_addresses.is_empty() { &file.node_port_addresses } else { &args.node_port_addresses };
        let (source, captures) = (source(args, &file)?, args.captures.clone().or(file.captures));
        if let (SourceSettings::Directory(path), Some(other)) = (&source, &captures) {
            return Err(SettingsError::TwoDirectories { captures: other.clone(), directory: path.clone() });
        }
        let admissions = admissions(args.admissions.clone().or(file.admissions), &source, captures.as_deref())?;
        let replaces = args.replace_kube_proxy || file.replace_kube_proxy;
        Ok(Settings {
            source,
            captures,
            admissions,
            node_name: args.node_name.clone().or(file.node_name).map_or_else(host_name, Ok)?,
            zone: args.zone.clone().or(file.zone),
            cgroup: args.cgroup.clone().or(file.cgroup).map_or_else(cgroup_mount, Ok)?,
            pins: pins(args.pins.clone().or(file.pins)),
            socket: socket(args.socket.clone().or(file.socket)),
            metrics: metrics(args.metrics.as_deref().or(file.metrics.as_deref()).unwrap_or(DEFAULT_METRICS))?,
            node_port_addresses: ranges.clone(),
            watch: args.watch || file.watch,
            arm: args.arm || file.arm,
            exempt: exempt(if args.exempt.is_empty() { &file.exempt } else { &args.exempt })?,
            network_policies: args.network_policies || file.network_policies,
            health_check_node_ports: args.health_check_node_ports || file.health_check_node_ports || replaces,
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
            ("node-name", self.node_name != other.node_name),
            ("cgroup", self.cgroup != other.cgroup),
            ("pins", self.pins != other.pins),
            ("socket", self.socket != other.socket),
            ("metrics", self.metrics != other.metrics),
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

/// The pins and the socket, for `--detach`.
pub fn places(args: &Args) -> (PathBuf, PathBuf) {
    (pins(args.pins.clone()), socket(args.socket.clone()))
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

fn exempt(texts: &[String]) -> Result<Vec<Netns>, SettingsError> {
    texts.iter().map(|text| Netns::read(text).map_err(SettingsError::Exempt)).collect()
}

fn metrics(text: &str) -> Result<Option<SocketAddr>, SettingsError> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| SettingsError::Metrics(text.into()))
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
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};
    use sidestep_error::chain;

    /// The settings for these options, or the error's text.
    fn of(words: &[&str]) -> Result<Settings, String> {
        let words = ["agent", "--cgroup", "/c", "--node-name", "n"].iter().chain(words);
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        Settings::new(&args).map_err(|error| chain(&error).to_string())
    }

    #[test]
    fn the_definitions_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn without_a_source_all_of_them_are_named() {
        let error = Args::try_parse_from(["agent", "--zone", "a"]).map(|_| ()).unwrap_err().to_string();
        let named = "<--config <DIR|FILE>|--kubeconfig <FILE>|--in-cluster|--detach>";
        assert!(error.contains("required arguments were not provided") && error.contains(named), "{error}");
    }

    #[test]
    fn options_decide_over_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "directory = '/d'\nzone = 'a'\nmetrics = 'off'\n").unwrap();
        let path = file.path().to_str().unwrap();
        let settings = of(&["--config", path, "--zone", "b"]).unwrap();
        assert!(matches!(&settings.source, SourceSettings::Directory(path) if path == Path::new("/d")));
        assert_eq!((settings.zone.as_deref(), settings.metrics), (Some("b"), None));
        let settings = of(&["--config", path, "--kubeconfig", "/k"]).unwrap();
        assert!(matches!(settings.source, SourceSettings::Kubeconfig(_)));
    }

    #[test]
    fn captures_come_from_a_directory_of_their_own_only_beside_an_api_server() {
        let settings = of(&["--kubeconfig", "/k", "--captures", "/c"]).unwrap();
        assert_eq!(settings.captures.as_deref(), Some(Path::new("/c")));
        let directory = tempfile::tempdir().unwrap();
        let error = of(&["--config", directory.path().to_str().unwrap(), "--captures", "/c"]).unwrap_err();
        assert!(error.contains("captures /c: Captures come from the directory"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "in-cluster = true\ncaptures = '/c'\n").unwrap();
        assert_eq!(
            of(&["--config", file.path().to_str().unwrap()]).unwrap().captures.as_deref(),
            Some(Path::new("/c"))
        );
    }

    #[test]
    fn pods_are_admitted_only_with_an_api_server_and_in_a_directory_of_their_own() {
        let settings = of(&["--kubeconfig", "/k", "--captures", "/c", "--admissions", "/a"]).unwrap();
        assert_eq!(settings.admissions.as_deref(), Some(Path::new("/a")));
        assert_eq!(of(&["--in-cluster"]).unwrap().admissions, None);
        let directory = tempfile::tempdir().unwrap();
        let error = of(&["--config", directory.path().to_str().unwrap(), "--admissions", "/a"]).unwrap_err();
        assert!(error.contains("admissions /a: pods are read from an API server"), "{error}");
        let error = of(&["--in-cluster", "--captures", "/a", "--admissions", "/a"]).unwrap_err();
        assert!(error.contains("/a cannot be both"), "{error}");
    }

    #[test]
    fn a_part_of_the_hierarchy_is_not_taken_for_all_of_it() {
        let mount = tempfile::tempdir().unwrap();
        assert_eq!(warning(mount.path()), None);
        std::fs::write(mount.path().join("cgroup.type"), "domain\n").unwrap();
        let warned = warning(mount.path()).unwrap();
        assert!(warned.contains("not the root of cgroup v2") && warned.contains("--cgroup"), "{warned}");
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        for (text, expected) in [
            ("directory = '/d'\nzoned = 'a'\n", "unknown field `zoned`"),
            ("zone = 'a'\n", "exactly one of directory, kubeconfig and in-cluster"),
            ("directory = '/d'\nin-cluster = true\n", "exactly one of"),
            ("directory = '/d'\nmetrics = 'here'\n", "metrics: expected ADDRESS:PORT or off, found \"here\""),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = of(&["--config", path]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let directory = tempfile::tempdir().unwrap();
        for other in [&["--kubeconfig", "/k"][..], &["--in-cluster"]] {
            let words = [&["--config", directory.path().to_str().unwrap()], other].concat();
            let error = of(&words).unwrap_err();
            assert!(error.contains("from this directory or from an API server, not from both"), "{error}");
        }
        assert!(of(&["--config", "/nowhere/agent.toml"]).unwrap_err().contains("/nowhere/agent.toml: cannot read it"));
    }
}
