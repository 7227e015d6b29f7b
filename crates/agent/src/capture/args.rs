//! Options of `sidestep capture` and their help. Options about rules have the names of istio-iptables.

use clap::Parser;
use sidestep_agent_api::DEFAULT_SOCKET;
use sidestep_mesh::capture::flags::{Flags, LOOPBACK_CIDR, OWNER_GROUPS, OWNER_GROUPS_EXCLUDE};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  sidestep capture --netns web-1 --cgroup /sys/fs/cgroup/kubepods/web-1 -i '*' -b '*' -d 15090,15021,15020
  sidestep capture --netns 4711 -i 10.96.0.0/12 -x 10.96.0.1/32 -o 5432   namespace of a process; some addresses only
  sidestep capture --netns web-1 -i '*' -b '*' --run-validation           ... and test it
  sidestep capture --netns web-1 -i '*' -b '*' --print                    the same as a file for `sidestep agent`
  sidestep capture --netns web-1 --remove                                 end the capture
  sidestep capture list                                                   what is captured, by the agent or without

The pod stays captured after the command has ended, until --remove or `sidestep agent --detach`. If an agent runs, it owns
the tables: give it the file that --print writes instead. Needs root, or CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and
CAP_SYS_ADMIN.";

/// Send a pod's connections through its proxy, as istio-iptables does, without iptables
///
/// Outbound connections of the pod's programs go to the proxy's outbound port, inbound ones to its inbound port. The proxy
/// gets the original destination by SO_ORIGINAL_DST. The rules and their order are those of istio-iptables.
#[derive(Parser)]
#[command(name = "sidestep capture", bin_name = "sidestep capture", version, after_help = EXAMPLES)]
pub struct Args {
    /// Same as --list
    #[arg(value_name = "list", value_parser = ["list"], hide = true)]
    pub action: Option<String>,
    /// The pod's network namespace: a name in /run/netns, a path, or a process in it
    #[arg(long, value_name = "NAME|PATH|PID", required_unless_present_any = ["list", "action"])]
    pub netns: Option<String>,
    /// The pod's cgroup v2 directory, or a parent of it [default: where cgroup v2 is mounted]
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,
    /// Keep programs and tables here, in a BPF file system [default: /sys/fs/bpf/sidestep]
    #[arg(long, value_name = "DIR")]
    pub pins: Option<PathBuf>,
    /// Port of the proxy for outbound connections
    #[arg(short = 'p', long, value_name = "PORT", default_value = "15001")]
    pub envoy_port: String,
    /// Port of the proxy for inbound connections
    #[arg(short = 'z', long, value_name = "PORT", default_value = "15006")]
    pub inbound_capture_port: String,
    /// Port at which the proxy accepts tunnels; never captured
    #[arg(short = 'e', long, value_name = "PORT", default_value = "15008")]
    pub inbound_tunnel_port: String,
    /// Users that the proxy runs as [default: istio-proxy, or 1337]
    #[arg(short = 'u', long, value_name = "UID,...", default_value = "", hide_default_value = true)]
    pub proxy_uid: String,
    /// Groups that the proxy runs as [default: as --proxy-uid]
    #[arg(short = 'g', long, value_name = "GID,...", default_value = "", hide_default_value = true)]
    pub proxy_gid: String,
    /// Only REDIRECT is supported
    #[arg(short = 'm', long, value_name = "MODE", default_value = "REDIRECT")]
    pub istio_inbound_interception_mode: String,
    /// Ports whose inbound connections are captured; * means all, an empty list none
    #[arg(short = 'b', long, value_name = "PORT,...|*", default_value = "", hide_default_value = true)]
    pub istio_inbound_ports: String,
    /// With -b '*': inbound ports that are not captured
    #[arg(short = 'd', long, value_name = "PORT,...", default_value = "", hide_default_value = true)]
    pub istio_local_exclude_ports: String,
    /// Interfaces whose connections are not captured
    #[arg(short = 'c', long, value_name = "NAME,...", default_value = "", hide_default_value = true)]
    pub istio_exclude_interfaces: String,
    /// Destination addresses whose outbound connections are captured; * means all, an empty list none
    #[arg(short = 'i', long, value_name = "CIDR,...|*", default_value = "", hide_default_value = true)]
    pub istio_service_cidr: String,
    /// Destination addresses that are not captured
    #[arg(short = 'x', long, value_name = "CIDR,...", default_value = "", hide_default_value = true)]
    pub istio_service_exclude_cidr: String,
    /// Destination ports that are captured whatever the address
    #[arg(short = 'q', long, value_name = "PORT,...", default_value = "", hide_default_value = true)]
    pub istio_outbound_ports: String,
    /// Destination ports that are not captured
    #[arg(short = 'o', long, value_name = "PORT,...", default_value = "", hide_default_value = true)]
    pub istio_local_outbound_ports_exclude: String,
    /// Interfaces of virtual machines: connections that arrive there go to the outbound port
    #[arg(short = 'k', long, value_name = "NAME,...", default_value = "", hide_default_value = true)]
    pub kube_virt_interfaces: String,
    /// Send DNS to the proxy's port 15053, if it is for the servers in the namespace's resolv.conf
    #[arg(long)]
    pub redirect_dns: bool,
    /// With --redirect-dns: for any server
    #[arg(long)]
    pub capture_all_dns: bool,
    /// Groups whose connections are captured
    #[arg(long, value_name = "GID,...|*", env = OWNER_GROUPS, default_value = "*")]
    pub owner_groups: String,
    /// With --owner-groups '*': groups whose connections are not captured
    #[arg(long, value_name = "GID,...", env = OWNER_GROUPS_EXCLUDE, default_value = "", hide_default_value = true)]
    pub owner_groups_exclude: String,
    /// An address of the loopback that stays inside
    #[arg(long, value_name = "CIDR", env = LOOPBACK_CIDR, default_value = "127.0.0.1/32", hide = true)]
    pub outbound_ipv4_loopback_cidr: String,
    /// Accepted for compatibility with istio-iptables; both address families are always handled
    #[arg(long, hide = true)]
    pub dual_stack: bool,
    /// While the proxy does not listen, inbound connections reach the program instead of being refused
    #[arg(long)]
    pub pass_without_proxy: bool,
    /// Test the rules in the namespace before the proxy runs, with a test server and a test client
    #[arg(long)]
    pub run_validation: bool,
    /// Print the equivalent file for `sidestep agent`, and do nothing else
    #[arg(long, conflicts_with_all = ["remove", "list", "run_validation"])]
    pub print: bool,
    /// End the capture of the pod
    #[arg(long)]
    pub remove: bool,
    /// Print what is captured: from the agent that listens at --socket, or, without an agent, from the tables at --pins
    #[arg(long, conflicts_with_all = ["remove", "netns"])]
    pub list: bool,
    /// With --list: print JSON with stable field names
    #[arg(long)]
    pub json: bool,
    /// With --list: the agent's socket
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
