//! Options of `sidestep capture` and their help. Options about rules have the names of istio-iptables.

use clap::Parser;
use sidestep_agent_api::DEFAULT_SOCKET;
use sidestep_mesh::capture::flags::{Flags, LOOPBACK_CIDR, OWNER_GROUPS, OWNER_GROUPS_EXCLUDE};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  sidestep capture --netns web-1 --cgroup /sys/fs/cgroup/kubepods/web-1 -i '*' -b '*' -d 15090,15021,15020
  sidestep capture --netns 4711 -i 10.96.0.0/12 -x 10.96.0.1/32 -o 5432   namespace of a process; some addresses only
  sidestep capture --netns web-1 -i '*' -b '*' --run-validation           ... and try it out
  sidestep capture --netns web-1 -i '*' -b '*' --print                    the same as a file for `sidestep agent`
  sidestep capture --netns web-1 --remove                                 undo it
  sidestep capture list                                                   what is captured, by the agent or without

What is captured stays so when the command has ended, until --remove or `sidestep agent --detach`. Where an agent runs, it
owns the tables: give it the file that --print writes instead. Needs root, or CAP_BPF,
CAP_PERFMON, CAP_NET_ADMIN and CAP_SYS_ADMIN.";

/// Send a pod's connections through its proxy, as istio-iptables does, without iptables
///
/// What the pod's programs dial goes to the proxy's outbound port, what comes in to its inbound port, and the proxy is told
/// what was dialled (SO_ORIGINAL_DST). The rules and their order are those of istio-iptables.
#[derive(Parser)]
#[command(name = "sidestep capture", bin_name = "sidestep capture", version, after_help = EXAMPLES)]
pub struct Args {
    /// As --list
    #[arg(value_name = "list", value_parser = ["list"], hide = true)]
    pub action: Option<String>,
    /// The pod's network namespace: a name in /run/netns, a path, or a process in it
    #[arg(long, value_name = "NAME|PATH|PID", required_unless_present_any = ["list", "action"])]
    pub netns: Option<String>,
    /// The pod's cgroup v2 directory, or one above [default: where cgroup v2 is mounted]
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,
    /// Keep programs and tables here, in a BPF file system [default: /sys/fs/bpf/sidestep]
    #[arg(long, value_name = "DIR")]
    pub pins: Option<PathBuf>,
    /// Port of the proxy for what the pod sends
    #[arg(short = 'p', long, value_name = "PORT", default_value = "15001")]
    pub envoy_port: String,
    /// Port of the proxy for what the pod receives
    #[arg(short = 'z', long, value_name = "PORT", default_value = "15006")]
    pub inbound_capture_port: String,
    /// Port at which the proxy receives tunnels, which is never captured
    #[arg(short = 'e', long, value_name = "PORT", default_value = "15008")]
    pub inbound_tunnel_port: String,
    /// Users whose sockets are the proxy's [default: istio-proxy, or 1337]
    #[arg(short = 'u', long, value_name = "UID,...", default_value = "", hide_default_value = true)]
    pub proxy_uid: String,
    /// Groups whose sockets are the proxy's [default: as --proxy-uid]
    #[arg(short = 'g', long, value_name = "GID,...", default_value = "", hide_default_value = true)]
    pub proxy_gid: String,
    /// REDIRECT, the only mode there is
    #[arg(short = 'm', long, value_name = "MODE", default_value = "REDIRECT")]
    pub istio_inbound_interception_mode: String,
    /// Ports at which what comes in is captured; * is all, nothing is none
    #[arg(short = 'b', long, value_name = "PORT,...|*", default_value = "", hide_default_value = true)]
    pub istio_inbound_ports: String,
    /// With -b '*': but not these
    #[arg(short = 'd', long, value_name = "PORT,...", default_value = "", hide_default_value = true)]
    pub istio_local_exclude_ports: String,
    /// Interfaces at which nothing is captured
    #[arg(short = 'c', long, value_name = "NAME,...", default_value = "", hide_default_value = true)]
    pub istio_exclude_interfaces: String,
    /// Addresses to which connections are captured; * is all, nothing is none
    #[arg(short = 'i', long, value_name = "CIDR,...|*", default_value = "", hide_default_value = true)]
    pub istio_service_cidr: String,
    /// But not these
    #[arg(short = 'x', long, value_name = "CIDR,...", default_value = "", hide_default_value = true)]
    pub istio_service_exclude_cidr: String,
    /// Ports to which connections are captured besides
    #[arg(short = 'q', long, value_name = "PORT,...", default_value = "", hide_default_value = true)]
    pub istio_outbound_ports: String,
    /// Ports to which nothing is captured
    #[arg(short = 'o', long, value_name = "PORT,...", default_value = "", hide_default_value = true)]
    pub istio_local_outbound_ports_exclude: String,
    /// Interfaces of virtual machines: what comes in there goes to the outbound port
    #[arg(short = 'k', long, value_name = "NAME,...", default_value = "", hide_default_value = true)]
    pub kube_virt_interfaces: String,
    /// DNS goes to the proxy's port 15053, if it is for the servers of the namespace's resolv.conf
    #[arg(long)]
    pub redirect_dns: bool,
    /// With --redirect-dns: whatever the server is
    #[arg(long)]
    pub capture_all_dns: bool,
    /// Groups whose connections are captured
    #[arg(long, value_name = "GID,...|*", env = OWNER_GROUPS, default_value = "*")]
    pub owner_groups: String,
    /// With --owner-groups '*': but not these
    #[arg(long, value_name = "GID,...", env = OWNER_GROUPS_EXCLUDE, default_value = "", hide_default_value = true)]
    pub owner_groups_exclude: String,
    /// An address of the loopback that stays inside
    #[arg(long, value_name = "CIDR", env = LOOPBACK_CIDR, default_value = "127.0.0.1/32", hide = true)]
    pub outbound_ipv4_loopback_cidr: String,
    /// Accepted for istio-iptables' sake; both families are always handled
    #[arg(long, hide = true)]
    pub dual_stack: bool,
    /// While the proxy does not listen, what comes in reaches the program itself instead of being refused
    #[arg(long)]
    pub pass_without_proxy: bool,
    /// Try it out in the namespace before the proxy runs, as the proxy and as a program
    #[arg(long)]
    pub run_validation: bool,
    /// Print the file for `sidestep agent` that means the same, and do nothing
    #[arg(long, conflicts_with_all = ["remove", "list", "run_validation"])]
    pub print: bool,
    /// End the capture of the pod
    #[arg(long)]
    pub remove: bool,
    /// Print what is captured: as the agent that listens at --socket says, else as the tables at --pins say
    #[arg(long, conflicts_with_all = ["remove", "netns"])]
    pub list: bool,
    /// With --list: JSON with stable field names
    #[arg(long)]
    pub json: bool,
    /// With --list: where the agent listens
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

impl Args {
    pub fn flags(&self) -> Flags {
        Flags {
            envoy_port: self.envoy_port.clone(),
            inbound_capture_port: self.inbound_capture_port.clone(),
            inbound_tunnel_port: self.inbound_tunnel_port.clone(),
            proxy_uid: self.proxy_uid.clone(),
            proxy_gid: self.proxy_gid.clone(),
            istio_inbound_interception_mode: self.istio_inbound_interception_mode.clone(),
            istio_inbound_ports: self.istio_inbound_ports.clone(),
            istio_local_exclude_ports: self.istio_local_exclude_ports.clone(),
            istio_exclude_interfaces: self.istio_exclude_interfaces.clone(),
            istio_service_cidr: self.istio_service_cidr.clone(),
            istio_service_exclude_cidr: self.istio_service_exclude_cidr.clone(),
            istio_outbound_ports: self.istio_outbound_ports.clone(),
            istio_local_outbound_ports_exclude: self.istio_local_outbound_ports_exclude.clone(),
            kube_virt_interfaces: self.kube_virt_interfaces.clone(),
            redirect_dns: self.redirect_dns,
            capture_all_dns: self.capture_all_dns,
            owner_groups: self.owner_groups.clone(),
            owner_groups_exclude: self.owner_groups_exclude.clone(),
            outbound_ipv4_loopback_cidr: self.outbound_ipv4_loopback_cidr.clone(),
        }
    }
}
