//! The document for `sidestep agent` that has the same meaning as the options.

use super::args::Args;
use serde_json::{Map, Value, json};
use sidestep_mesh::capture::rules::{DnsServers, Rules, WithoutProxy};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The document in JSON, which is YAML, too.
pub fn of(args: &Args, name: &str, rules: &Rules, addresses: &BTreeSet<IpAddr>) -> String {
    let file = json!({
        "apiVersion": "sidestep.dev/v1",
        "kind": "Capture",
        "metadata": { "name": object_name(name), "namespace": "default", "annotations": annotations(args) },
        "spec": spec(args, name, rules, addresses),
    });
    format!("{:#}\n", file)
}

/// The annotations of Istio that correspond to istio-iptables' flags.
fn annotations(args: &Args) -> Map<String, Value> {
    let named = [
        ("includeInboundPorts", &args.istio_inbound_ports),
        ("excludeInboundPorts", &args.istio_local_exclude_ports),
        ("includeOutboundIPRanges", &args.istio_service_cidr),
        ("excludeOutboundIPRanges", &args.istio_service_exclude_cidr),
        ("includeOutboundPorts", &args.istio_outbound_ports),
        ("excludeOutboundPorts", &args.istio_local_outbound_ports_exclude),
        ("excludeInterfaces", &args.istio_exclude_interfaces),
        ("kubevirtInterfaces", &args.kube_virt_interfaces),
    ];
    named.into_iter().map(|(name, value)| (format!("traffic.sidecar.istio.io/{name}"), json!(value))).collect()
}

fn spec(args: &Args, netns: &str, rules: &Rules, addresses: &BTreeSet<IpAddr>) -> Value {
    let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut spec = json!({
        "netns": netns,
        "addresses": addresses,
        "proxy": {
            "uid": list(&rules.proxy_uids),
            "gid": list(&rules.proxy_gids),
            "outboundPort": rules.outbound_port,
            "inboundPort": rules.inbound_port,
            "withoutProxy": if rules.without_proxy == WithoutProxy::Pass { "pass" } else { "refuse" },
        },
    });
    if let Some(cgroup) = &args.cgroup {
        spec["cgroup"] = json!(cgroup);
    }
    if let Some(dns) = &rules.dns {
        let servers = match &dns.servers {
            DnsServers::All => json!("all"),
            DnsServers::These(list) => json!(list),
        };
        spec["dns"] = json!({ "port": dns.port, "servers": servers });
    }
    spec
}

fn object_name(netns: &str) -> String {
    let name: String =
        netns.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    format!("pod-{}", name.trim_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use sidestep_mesh::capture::defaults;
    use sidestep_mesh::object::Object;
    use sidestep_mesh::yaml;

    #[test]
    fn the_file_says_who_has_which_addresses() {
        let args = Args::parse_from(["capture", "--netns", "web", "--print"]);
        let addresses = BTreeSet::from(["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]);
        let read = yaml::parse(&of(&args, "web", &defaults::rules(), &addresses)).unwrap();
        let [Object::Capture(capture)] = &read[..] else { panic!("{read:?}") };
        assert!(capture.addresses.iter().eq(&addresses), "{capture:?}");
    }
}
