//! Generates capture's rules as istio-iptables writes them, for comparison with the rules at the sockets.

use ipnet::IpNet;
use sidestep_mesh::address::Family;
use sidestep_mesh::capture::rules::{Dns, DnsServers, InboundPorts, OwnerGroups, Ranges, Rules};
use std::fmt::Write;
use std::net::IpAddr;

/// All tables for `iptables-restore --noflush`, or `ip6tables-restore --noflush`.
pub fn tables(rules: &Rules, family: Family) -> String {
    nat(rules, family) + &raw(rules, family).unwrap_or_default()
}

/// The nat table: which connections are redirected.
pub fn nat(rules: &Rules, family: Family) -> String {
    let mut table = Table::new(rules, family);
    table.interfaces();
    table.append("ISTIO_INBOUND", &format!("-p tcp --dport {} -j RETURN", rules.tunnel_port));
    table.append("ISTIO_REDIRECT", &format!("-p tcp -j REDIRECT --to-ports {}", rules.outbound_port));
    table.append("ISTIO_IN_REDIRECT", &format!("-p tcp -j REDIRECT --to-ports {}", rules.inbound_port));
    table.inbound_ports();
    table.append("OUTPUT", "-j ISTIO_OUTPUT");
    table.excluded_ports();
    table.output(&format!("-o lo -s {} -j RETURN", table.passthrough()));
    table.owners();
    table.owner_groups();
    table.dns();
    table.output(&format!("-d {} -j RETURN", table.loopback()));
    table.destinations();
    table.text("nat")
}

/// The raw table: keeps conntrack's entries for a program's DNS query and for the proxy's own query apart. None without DNS.
pub fn raw(rules: &Rules, family: Family) -> Option<String> {
    let mut table = Table::new(rules, family);
    let servers = table.name_servers()?;
    table.append("OUTPUT", "-j ISTIO_OUTPUT_DNS");
    let owners = [("uid", &rules.proxy_uids), ("gid", &rules.proxy_gids)];
    for (kind, id) in owners.into_iter().flat_map(|(kind, ids)| ids.iter().map(move |id| (kind, id))) {
        let owner = format!("-m owner --{kind}-owner {id}");
        table.append("ISTIO_OUTPUT_DNS", &format!("-p udp --dport 53 {owner} -j CT --zone 1"));
        table.append("ISTIO_OUTPUT_DNS", &format!("-p udp --sport 15053 {owner} -j CT --zone 2"));
    }
    if !servers.is_empty() {
        table.append("PREROUTING", "-j ISTIO_INBOUND");
    }
    for server in servers {
        table.append("ISTIO_OUTPUT_DNS", &format!("-p udp --dport 53 {}-j CT --zone 2", at("-d", server)));
        table.append("ISTIO_INBOUND", &format!("-p udp --sport 53 {}-j CT --zone 1", at("-s", server)));
    }
    Some(table.text("raw"))
}

/// Empty for any server.
fn at(option: &str, server: Option<IpAddr>) -> String {
    server.map_or(String::new(), |ip| format!("{option} {} ", IpNet::from(ip)))
}

struct Table<'a> {
    rules: &'a Rules,
    family: Family,
    /// Pairs of chain and line.
    lines: Vec<(&'static str, String)>,
}

impl<'a> Table<'a> {
    fn new(rules: &'a Rules, family: Family) -> Table<'a> {
        Table { rules, family, lines: Vec::new() }
    }

    fn append(&mut self, chain: &'static str, rule: &str) {
        self.lines.push((chain, format!("-A {chain} {rule}")));
    }

    fn output(&mut self, rule: &str) {
        self.append("ISTIO_OUTPUT", rule);
    }

    fn insert(&mut self, chain: &'static str, rule: &str) {
        self.lines.push((chain, format!("-I {chain} 1 {rule}")));
    }

    fn loopback(&self) -> &'static str {
        match self.family {
            Family::V4 => "127.0.0.1/32",
            Family::V6 => "::1/128",
        }
    }

    fn passthrough(&self) -> &'static str {
        match self.family {
            Family::V4 => "127.0.0.6/32",
            Family::V6 => "::6/128",
        }
    }

    fn interfaces(&mut self) {
        for interface in &self.rules.exclude_interfaces {
            self.append("PREROUTING", &format!("-i {interface} -j RETURN"));
            self.append("OUTPUT", &format!("-o {interface} -j RETURN"));
        }
        for interface in &self.rules.virtual_interfaces {
            self.insert("PREROUTING", &format!("-i {interface} -j RETURN"));
        }
    }

    fn inbound_ports(&mut self) {
        if self.rules.inbound_ports == InboundPorts::Only(Vec::new()) {
            return;
        }
        self.append("PREROUTING", "-p tcp -j ISTIO_INBOUND");
        let (ports, target) = match &self.rules.inbound_ports {
            InboundPorts::AllBut(ports) => (ports, "RETURN"),
            InboundPorts::Only(ports) => (ports, "ISTIO_IN_REDIRECT"),
        };
        for port in ports {
            self.append("ISTIO_INBOUND", &format!("-p tcp --dport {port} -j {target}"));
        }
        if let InboundPorts::AllBut(_) = self.rules.inbound_ports {
            self.append("ISTIO_INBOUND", "-p tcp -j ISTIO_IN_REDIRECT");
        }
    }

    fn excluded_ports(&mut self) {
        for port in &self.rules.exclude_outbound_ports {
            self.output(&format!("-p tcp --dport {port} -j RETURN"));
            self.output(&format!("-p udp --dport {port} -j RETURN"));
        }
    }

    fn owners(&mut self) {
        let tunnel = self.rules.tunnel_port;
        let with_dns = format!("-m multiport ! --dports 53,{tunnel}");
        let without_dns = format!("! --dport {tunnel}");
        let of_users = if self.captured_dns().is_some() { &with_dns } else { &without_dns };
        for uid in &self.rules.proxy_uids {
            self.owner(of_users, &format!("--uid-owner {uid}"));
        }
        for gid in &self.rules.proxy_gids {
            self.owner(&without_dns, &format!("--gid-owner {gid}"));
        }
    }

    fn owner(&mut self, ports: &str, owner: &str) {
        let loopback = self.loopback();
        self.output(&format!("-o lo ! -d {loopback} -p tcp {ports} -m owner {owner} -j ISTIO_IN_REDIRECT"));
        if !self.includes_loopback() {
            let not_dns = if self.captured_dns().is_some() { "-p tcp ! --dport 53 " } else { "" };
            self.output(&format!("-o lo {not_dns}-m owner ! {owner} -j RETURN"));
        }
        self.output(&format!("-m owner {owner} -j RETURN"));
    }

    fn includes_loopback(&self) -> bool {
        match &self.rules.include_outbound_ranges {
            Ranges::All => false,
            Ranges::These(ranges) => ranges.iter().any(|range| range.addr().is_loopback()),
        }
    }

    fn owner_groups(&mut self) {
        match &self.rules.owner_groups {
            OwnerGroups::AllBut(groups) => {
                for gid in groups {
                    self.output(&format!("-m owner --gid-owner {gid} -j RETURN"));
                }
            }
            OwnerGroups::Only(groups) => {
                let none_of: String = groups.iter().map(|gid| format!("-m owner ! --gid-owner {gid} ")).collect();
                self.output(&format!("{none_of}-j RETURN"));
            }
        }
    }

    /// None if no server is captured.
    fn captured_dns(&self) -> Option<&'a Dns> {
        self.rules.dns.as_ref().filter(|dns| dns.servers != DnsServers::These(Vec::new()))
    }

    /// The name servers of the family, or a single None for any server; None: no DNS capture.
    fn name_servers(&self) -> Option<Vec<Option<IpAddr>>> {
        Some(match &self.captured_dns()?.servers {
            DnsServers::All => vec![None],
            DnsServers::These(all) => {
                all.iter().filter(|ip| Family::of(**ip) == self.family).map(|ip| Some(*ip)).collect()
            }
        })
    }

    fn dns(&mut self) {
        let Some(servers) = self.name_servers().filter(|servers| !servers.is_empty()) else { return };
        let port = self.rules.dns.as_ref().expect("a captured server implies DNS").port;
        self.output("-j ISTIO_OUTPUT_DNS");
        // Istio writes both forms of the option; they mean the same.
        for (protocol, to) in [("tcp", "--to-ports"), ("udp", "--to-port")] {
            for server in &servers {
                let at = at("-d", *server);
                self.append("ISTIO_OUTPUT_DNS", &format!("-p {protocol} --dport 53 {at}-j REDIRECT {to} {port}"));
            }
        }
    }

    fn destinations(&mut self) {
        let (rules, family) = (self.rules, self.family);
        for range in rules.exclude_outbound_ranges.iter().filter(|range| Family::of(range.addr()) == family) {
            self.output(&format!("-d {range} -j RETURN"));
        }
        for port in &rules.include_outbound_ports {
            self.output(&format!("-p tcp --dport {port} -j ISTIO_REDIRECT"));
        }
        match &rules.include_outbound_ranges {
            Ranges::All => {
                self.output("-j ISTIO_REDIRECT");
                self.of_machines("");
            }
            Ranges::These(ranges) => {
                for range in ranges.iter().filter(|range| Family::of(range.addr()) == family) {
                    self.of_machines(&format!("-d {range} "));
                    self.output(&format!("-d {range} -j ISTIO_REDIRECT"));
                }
            }
        }
    }

    /// A virtual machine's incoming packets are its outbound traffic.
    fn of_machines(&mut self, destination: &str) {
        for interface in &self.rules.virtual_interfaces {
            self.insert("PREROUTING", &format!("-i {interface} {destination}-j ISTIO_REDIRECT"));
        }
    }

    /// Chains come before lines.
    fn text(&self, name: &str) -> String {
        let mut chains = Vec::new();
        for (chain, _) in self.lines.iter().filter(|(chain, _)| chain.starts_with("ISTIO_")) {
            if !chains.contains(chain) {
                chains.push(chain);
            }
        }
        let chains = chains.iter().map(|chain| format!("-N {chain}"));
        let mut text = format!("* {name}\n");
        for line in chains.chain(self.lines.iter().map(|(_, line)| line.clone())) {
            let _ = writeln!(text, "{line}");
        }
        text + "COMMIT\n"
    }
}
