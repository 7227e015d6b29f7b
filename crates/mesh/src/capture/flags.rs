//! The flags of istio-iptables, converted to rules.

use super::defaults;
use super::rules::{Dns, DnsServers, Rules, WithoutProxy};
use super::text::{Result, Text};
use std::net::IpAddr;

/// The flags' values as given, named by the long flags. The remaining flags of istio-iptables only say how rules get into the
/// kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// `-p`
    pub envoy_port: String,
    /// `-z`
    pub inbound_capture_port: String,
    /// `-e`
    pub inbound_tunnel_port: String,
    /// `-u`. Empty: the user `istio-proxy` if it exists, else 1337.
    pub proxy_uid: String,
    /// `-g`. Empty: as `proxy_uid`.
    pub proxy_gid: String,
    /// `-m`. Empty: REDIRECT.
    pub istio_inbound_interception_mode: String,
    /// `-b`
    pub istio_inbound_ports: String,
    /// `-d`
    pub istio_local_exclude_ports: String,
    /// `-c`
    pub istio_exclude_interfaces: String,
    /// `-i`
    pub istio_service_cidr: String,
    /// `-x`
    pub istio_service_exclude_cidr: String,
    /// `-q`
    pub istio_outbound_ports: String,
    /// `-o`
    pub istio_local_outbound_ports_exclude: String,
    /// `-k`
    pub kube_virt_interfaces: String,
    /// Captures DNS: queries to the name servers of resolv.conf, or to all servers with `capture_all_dns`.
    pub redirect_dns: bool,
    /// Counts only with `redirect_dns`.
    pub capture_all_dns: bool,
    /// [`OWNER_GROUPS`]: not a flag of istio-iptables, but an environment variable.
    pub owner_groups: String,
    /// [`OWNER_GROUPS_EXCLUDE`]: likewise.
    pub owner_groups_exclude: String,
    /// [`LOOPBACK_CIDR`]: likewise.
    pub outbound_ipv4_loopback_cidr: String,
}

/// Environment variable: groups whose connections are captured, by number or name; `*`, the default: all.
pub const OWNER_GROUPS: &str = "ISTIO_OUTBOUND_OWNER_GROUPS";
/// Environment variable: groups whose connections are not captured. Counts only if all are included.
pub const OWNER_GROUPS_EXCLUDE: &str = "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE";
/// Environment variable: which addresses count as loopback. Only its default, 127.0.0.1/32, is accepted.
pub const LOOPBACK_CIDR: &str = "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR";

const LOOPBACK: &str = "127.0.0.1/32";
const PROXY_USER: &str = "istio-proxy";
const UID: &str = "a user's number, or the name of one that is known";
const GID: &str = "a group's number, or the name of one that is known";

/// The defaults of istio-iptables: nothing is captured but the proxy's own calls to its pod.
impl Default for Flags {
    fn default() -> Flags {
        Flags {
            envoy_port: defaults::OUTBOUND_PORT.to_string(),
            inbound_capture_port: defaults::INBOUND_PORT.to_string(),
            inbound_tunnel_port: defaults::TUNNEL_PORT.to_string(),
            proxy_uid: String::new(),
            proxy_gid: String::new(),
            istio_inbound_interception_mode: String::new(),
            istio_inbound_ports: String::new(),
            istio_local_exclude_ports: String::new(),
            istio_exclude_interfaces: String::new(),
            istio_service_cidr: String::new(),
            istio_service_exclude_cidr: String::new(),
            istio_outbound_ports: String::new(),
            istio_local_outbound_ports_exclude: String::new(),
            kube_virt_interfaces: String::new(),
            redirect_dns: false,
            capture_all_dns: false,
            owner_groups: "*".to_string(),
            owner_groups_exclude: String::new(),
            outbound_ipv4_loopback_cidr: LOOPBACK.to_string(),
        }
    }
}

/// The surroundings on which the meaning of flags depends.
#[derive(Clone, Copy)]
pub struct FlagContext<'a> {
    /// The text of resolv.conf, which matters where DNS is captured for its name servers only.
    pub resolv_conf: &'a str,
    /// The uid of a user name. None: there is no such user.
    pub user: &'a dyn Fn(&str) -> Option<u32>,
    /// The gid of a group name. None: there is no such group.
    pub group: &'a dyn Fn(&str) -> Option<u32>,
}

impl FlagContext<'_> {
    /// No user or group names, and no name servers.
    pub const NOWHERE: FlagContext<'static> = FlagContext { resolv_conf: "", user: &|_| None, group: &|_| None };
}

impl Flags {
    /// Reads the values. `without_proxy` has no flag in istio-iptables. The error names the first flag or variable with an
    /// invalid value.
    pub fn rules(&self, context: &FlagContext, without_proxy: WithoutProxy) -> Result<Rules> {
        flag("--istio-inbound-interception-mode", &self.istio_inbound_interception_mode).mode()?;
        self.check_loopback()?;
        let excluded_inbound = flag("--istio-local-exclude-ports", &self.istio_local_exclude_ports).ports()?;
        let excluded_groups = flag(OWNER_GROUPS_EXCLUDE, &self.owner_groups_exclude).ids(context.group, GID)?;
        Ok(Rules {
            outbound_port: flag("--envoy-port", &self.envoy_port).port()?,
            inbound_port: flag("--inbound-capture-port", &self.inbound_capture_port).port()?,
            tunnel_port: flag("--inbound-tunnel-port", &self.inbound_tunnel_port).port()?,
            dns: self.dns(context)?,
            proxy_uids: flag("--proxy-uid", &self.proxy_uid(context)).owners(context.user, UID)?,
            proxy_gids: flag("--proxy-gid", &self.proxy_gid(context)).owners(context.group, GID)?,
            owner_groups: flag(OWNER_GROUPS, &self.owner_groups).owner_groups(excluded_groups, context.group, GID)?,
            include_outbound_ranges: flag("--istio-service-cidr", &self.istio_service_cidr).all_or_ranges()?,
            exclude_outbound_ranges: flag("--istio-service-exclude-cidr", &self.istio_service_exclude_cidr).ranges()?,
            include_outbound_ports: flag("--istio-outbound-ports", &self.istio_outbound_ports).ports()?,
            exclude_outbound_ports: self.excluded_outbound_ports()?,
            inbound_ports: flag("--istio-inbound-ports", &self.istio_inbound_ports).inbound_ports(excluded_inbound)?,
            exclude_interfaces: flag("--istio-exclude-interfaces", &self.istio_exclude_interfaces).interfaces()?,
            virtual_interfaces: flag("--kube-virt-interfaces", &self.kube_virt_interfaces).interfaces()?,
            without_proxy,
        })
    }

    /// Refuses the variable: it is rarely set, and the rules cannot express it.
    fn check_loopback(&self) -> Result<()> {
        let given = flag(LOOPBACK_CIDR, &self.outbound_ipv4_loopback_cidr);
        if given.text == LOOPBACK { Ok(()) } else { given.wrong(given.text, LOOPBACK) }
    }

    fn excluded_outbound_ports(&self) -> Result<Vec<u16>> {
        flag("--istio-local-outbound-ports-exclude", &self.istio_local_outbound_ports_exclude).ports()
    }

    fn proxy_uid(&self, context: &FlagContext) -> String {
        if !self.proxy_uid.is_empty() {
            return self.proxy_uid.clone();
        }
        (context.user)(PROXY_USER).unwrap_or(defaults::PROXY).to_string()
    }

    fn proxy_gid(&self, context: &FlagContext) -> String {
        if self.proxy_gid.is_empty() { self.proxy_uid(context) } else { self.proxy_gid.clone() }
    }

    /// None if there is no name server: then DNS is not captured at all, and the other rules are those without DNS.
    fn dns(&self, context: &FlagContext) -> Result<Option<Dns>> {
        let servers = match (self.redirect_dns, self.capture_all_dns) {
            (false, _) => return Ok(None),
            (true, true) => DnsServers::All,
            (true, false) => DnsServers::These(name_servers(context.resolv_conf)?),
        };
        let is_nobody = servers == DnsServers::These(Vec::new());
        Ok((!is_nobody).then_some(Dns { port: defaults::DNS_PORT, servers }))
    }
}

fn flag<'a>(name: &'a str, text: &'a str) -> Text<'a> {
    Text { name, text }
}

/// The name servers in a resolv.conf, without zones: rules have none.
fn name_servers(resolv_conf: &str) -> Result<Vec<IpAddr>> {
    let mut servers = Vec::new();
    for line in resolv_conf.lines() {
        let mut words = line.split_whitespace();
        let (Some("nameserver"), Some(server)) = (words.next(), words.next()) else { continue };
        let address = server.split('%').next().and_then(|address| address.parse().ok());
        match address.map(|address: IpAddr| address.to_canonical()) {
            Some(address) if servers.contains(&address) => {}
            Some(address) => servers.push(address),
            None => return flag("resolv.conf, nameserver", server).wrong(server, "an IP address"),
        }
    }
    Ok(servers)
}
