//! Command-line options and their help.

use clap::{ArgGroup, Parser, ValueEnum};
use ipnet::IpNet;
use serde::Deserialize;
use sidestep_log::Format;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  sidestep agent --config /etc/sidestep/services/   Services and EndpointSlices from the YAML files there, as they change
  sidestep agent --kubeconfig ~/.kube/config        ... from a Kubernetes API server
  sidestep agent --in-cluster                       ... from the API server of the cluster in which this is a pod
  sidestep agent --in-cluster --captures /etc/sidestep/captures/   ... and pods to capture, and policies, from files
  sidestep agent --config /etc/sidestep/agent.toml  all settings from a file:
      directory = \"/etc/sidestep/services\"   # or kubeconfig = \"FILE\", or in-cluster = true
      node-name = \"worker-1\"
      zone = \"a\"
      metrics = \"127.0.0.1:9464\"
  sidestep agent --detach                           stop balancing and remove everything
  sidestep agent --detach --config /etc/sidestep/agent.toml        ... of an agent whose settings name other pins

SIGTERM and SIGINT end the agent; connections are still balanced as it has programmed last. A new agent takes that
over. Needs root, or CAP_BPF and CAP_NET_ADMIN.";

/// Options of which one is required: a source of Services, or `--detach`.
const SOURCES: [&str; 4] = ["config", "kubeconfig", "in_cluster", "detach"];

/// Balance connections to Kubernetes Services at the socket
///
/// Keeps tables in the kernel in line with the Services. A connection to the address of a Service is then made directly to
/// one of its backends, without a NAT rule and without work for each packet.
#[derive(Parser)]
#[command(name = "sidestep agent", bin_name = "sidestep agent", version, after_help = EXAMPLES)]
// Without any of these the error names all of them.
#[command(group(ArgGroup::new("source").required(true).multiple(true).args(SOURCES)))]
pub struct Args {
    /// A directory of YAML files (v1 Service, discovery.k8s.io/v1 EndpointSlice, sidestep.dev/v1 Capture and
    /// Policy), or a TOML file with settings
    #[arg(long, value_name = "DIR|FILE")]
    pub config: Option<PathBuf>,
    /// Read the Services from the API server that this file names
    #[arg(long, value_name = "FILE", conflicts_with = "in_cluster")]
    pub kubeconfig: Option<PathBuf>,
    /// Read the Services from the API server of the cluster in which this process is a pod
    #[arg(long)]
    pub in_cluster: bool,
    /// With an API server: read captured pods and policies from the YAML files of this directory (sidestep.dev/v1 Capture, Policy)
    #[arg(long, value_name = "DIR")]
    pub captures: Option<PathBuf>,
    /// With an API server: admit pods for the CNI plugin sidestep-cni, by their Istio annotations, and keep them in this directory
    /// (such as /run/sidestep/admissions), where an agent that is started later finds them
    #[arg(long, value_name = "DIR")]
    pub admissions: Option<PathBuf>,
    /// With --admissions, in a container: the node's directory that is mounted at /run/netns here. By that directory the container
    /// runtime names network namespaces [default: /run/netns]
    #[arg(long, value_name = "DIR")]
    pub host_netns: Option<PathBuf>,
    /// With --admissions: what to do about pods of this node that run without having been admitted, since they were there before the
    /// CNI plugin: label them sidestep.dev/not-admitted=true, or evict those that a controller starts again
    #[arg(long, value_name = "HOW", value_enum)]
    pub repair: Option<Remedy>,
    /// How long such a pod may run [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub repair_after: Option<u64>,
    /// With an API server: remove the taint sidestep.dev/agent-not-ready from this node once the agent is ready
    #[arg(long)]
    pub remove_taint: bool,
    /// With an API server: write the names of namespaces with the label sidestep.dev/rings=enabled into this file, for
    /// sidestep-nri --namespaces-file
    #[arg(long, value_name = "FILE")]
    pub rings_namespaces: Option<PathBuf>,
    /// With an API server: publish what sidestep-nri --events FILE says of containers as Events of their pods
    #[arg(long, value_name = "FILE")]
    pub rings_events: Option<PathBuf>,
    /// This node's name, as endpoints name it [default: the host name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// This node's zone, for topology hints [default: the label topology.kubernetes.io/zone of the API server's Node]
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    /// Balance processes in this cgroup v2 directory, and below [default: where cgroup v2 is mounted]
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,
    /// Keep programs and tables here, in a BPF file system [default: /sys/fs/bpf/sidestep]
    #[arg(long, value_name = "DIR")]
    pub pins: Option<PathBuf>,
    /// Serve metrics in Prometheus' format at http://ADDRESS/metrics; or off [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDRESS|off")]
    pub metrics: Option<String>,
    /// Socket for `sidestep service`, `sidestep explain` and others [default: /run/sidestep/agent.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// With an API server: read no Services. Another program balances them, such as Cilium or kube-proxy
    #[arg(long, conflicts_with_all = ["replace_kube_proxy", "health_check_node_ports", "node_port_addresses"])]
    pub no_services: bool,
    /// Serve NodePorts only at the node's addresses in these networks [default: at all of them]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub node_port_addresses: Vec<IpNet>,
    /// Count TCP connections for each pair of workloads and each Service: bytes, failures, latency, round-trip times. Adds 3 us
    /// to a connection, and nothing while it lasts
    #[arg(long)]
    pub watch: bool,
    /// Arm this node: a network namespace may communicate with nobody until it is admitted, which happens when its rules are in
    /// force. This outlives the agent; the next agent without this option disarms the node
    #[arg(long)]
    pub arm: bool,
    /// On an armed node: network namespaces that may communicate although no document of kind Capture names them: names in
    /// /run/netns, paths, or processes
    #[arg(long, value_name = "NETNS", value_delimiter = ',')]
    pub exempt: Vec<String>,
    /// Answer at the healthCheckNodePorts of Services, as kube-proxy does; for nodes without one
    #[arg(long)]
    pub health_check_node_ports: bool,
    /// Serve as the node's only proxy: packets from outside and from pods are translated as well, at NodePorts, external addresses,
    /// load balancers' addresses and cluster IPs, and healthCheckNodePorts are answered. Refuses to start beside kube-proxy's rules
    #[arg(long)]
    pub replace_kube_proxy: bool,
    /// With --replace-kube-proxy: networks of the pods of all nodes. Packets from elsewhere to a cluster IP are masqueraded, and
    /// externalTrafficPolicy: Local does not apply to pods [default: none, every sender is external]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub cluster_cidr: Vec<IpNet>,
    /// How the agent logs, on standard error; RUST_LOG says what
    #[arg(long, value_enum, default_value_t)]
    pub log_format: Format,
    /// With an API server: enforce its NetworkPolicies (networking.k8s.io/v1) on the captured pods of this node. NetworkPolicies in
    /// files are enforced without this option
    #[arg(long)]
    pub network_policies: bool,
    /// Remove everything of the agent: programs, tables, socket. A running agent ends. With --config FILE: of the agent with these settings
    #[arg(long, conflicts_with_all = ["kubeconfig", "in_cluster", "captures", "admissions", "host_netns", "rings_namespaces", "rings_events", "repair", "repair_after", "remove_taint", "watch", "arm", "exempt", "network_policies", "no_services", "health_check_node_ports", "replace_kube_proxy", "cluster_cidr"])]
    pub detach: bool,
    /// With --detach: also remove what Sidestep's parts on this node keep for each other in this directory (such as /run/sidestep): its
    /// directories admissions, member and rings. The parts have ended before. Everything else there stays
    #[arg(long, value_name = "DIR", requires = "detach")]
    pub empty: Option<PathBuf>,
}

/// What is done about pods that were not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// Label them
    Label,
    /// Evict them, if a controller starts them again
    Delete,
}
