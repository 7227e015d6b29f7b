//! What istio-iptables' flags and Istio's annotations mean, and errors in them.

use sidestep_mesh::capture::flags::{FlagContext, Flags};
use sidestep_mesh::capture::rules::{Dns, DnsServers, InboundPorts, OwnerGroups, Ranges, Rules, WithoutProxy};
use sidestep_mesh::capture::{annotations, defaults};
use std::collections::BTreeMap;

fn parsed(flags: &Flags, context: &FlagContext) -> Result<Rules, String> {
    flags.rules(context, WithoutProxy::Refuse).map_err(|invalid| invalid.to_string())
}

fn rules(change: impl FnOnce(&mut Flags)) -> Result<Rules, String> {
    let mut flags = Flags::default();
    change(&mut flags);
    parsed(&flags, &FlagContext::NOWHERE)
}

#[test]
fn without_flags_it_is_as_istio_iptables_has_it() {
    let expected = Rules {
        include_outbound_ranges: Ranges::These(vec![]),
        inbound_ports: InboundPorts::Only(vec![]),
        ..defaults::rules()
    };
    assert_eq!(rules(|_| ()), Ok(expected));
}

#[test]
fn the_flags_of_the_injector() {
    let found = rules(|flags| {
        flags.proxy_uid = "1337".into();
        flags.istio_inbound_interception_mode = "REDIRECT".into();
        flags.istio_service_cidr = "*".into();
        flags.istio_inbound_ports = "*".into();
        flags.istio_local_exclude_ports = "15090,15021,15020".into();
    });
    assert_eq!(found, Ok(defaults::rules()));
    assert_eq!(annotated(&[]), found);
}

#[test]
fn every_flag_has_its_place() {
    let flags = Flags {
        envoy_port: "1".into(),
        inbound_capture_port: "2".into(),
        inbound_tunnel_port: "3".into(),
        proxy_uid: "4,5".into(),
        proxy_gid: "6".into(),
        istio_inbound_interception_mode: "REDIRECT".into(),
        istio_inbound_ports: "*".into(),
        istio_local_exclude_ports: "7,8,7".into(),
        istio_exclude_interfaces: "eth1, net1".into(),
        istio_service_cidr: "10.1.2.3/8,fd00::/8".into(),
        istio_service_exclude_cidr: "10.9.0.0/16".into(),
        istio_outbound_ports: "9,".into(),
        istio_local_outbound_ports_exclude: ",10".into(),
        kube_virt_interfaces: "k6t-eth0".into(),
        redirect_dns: true,
        capture_all_dns: true,
        owner_groups: "11,12".into(),
        owner_groups_exclude: "13".into(),
        ..Flags::default()
    };
    let expected = Rules {
        outbound_port: 1,
        inbound_port: 2,
        tunnel_port: 3,
        dns: Some(Dns { port: 15053, servers: DnsServers::All }),
        proxy_uids: vec![4, 5],
        proxy_gids: vec![6],
        owner_groups: OwnerGroups::Only(vec![11, 12]),
        include_outbound_ranges: Ranges::These(vec!["10.1.2.3/8".parse().unwrap(), "fd00::/8".parse().unwrap()]),
        exclude_outbound_ranges: vec!["10.9.0.0/16".parse().unwrap()],
        include_outbound_ports: vec![9],
        exclude_outbound_ports: vec![10],
        inbound_ports: InboundPorts::AllBut(vec![7, 8]),
        exclude_interfaces: vec!["eth1".into(), "net1".into()],
        virtual_interfaces: vec!["k6t-eth0".into()],
        without_proxy: WithoutProxy::Pass,
    };
    assert_eq!(flags.rules(&FlagContext::NOWHERE, WithoutProxy::Pass), Ok(expected));
}

#[test]
fn exclusions_count_only_beside_everything() {
    let found = rules(|flags| {
        flags.istio_inbound_ports = "80,90".into();
        flags.istio_local_exclude_ports = "80".into();
        flags.owner_groups = String::new();
        flags.owner_groups_exclude = "7".into();
    })
    .unwrap();
    assert_eq!(found.inbound_ports, InboundPorts::Only(vec![80, 90]));
    assert_eq!(found.owner_groups, OwnerGroups::Only(vec![]));
    let found = rules(|flags| flags.owner_groups_exclude = "7".into()).unwrap();
    assert_eq!(found.owner_groups, OwnerGroups::AllBut(vec![7]));
}

/// Other implementations limit lists to 20 entries.
#[test]
fn a_list_may_be_long() {
    let ports: Vec<u16> = (1..=3000).collect();
    let text = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    assert_eq!(rules(|flags| flags.istio_outbound_ports = text).unwrap().include_outbound_ports, ports);
}

#[test]
fn names_of_users_and_groups_are_looked_up_where_that_is_possible() {
    let of = |known: &'static [(&'static str, u32)]| {
        move |name: &str| known.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    };
    let (user, group) = (of(&[("istio-proxy", 1500), ("envoy", 7)]), of(&[("istio-proxy", 1501), ("envoy", 8)]));
    let context = FlagContext { user: &user, group: &group, ..FlagContext::NOWHERE };
    let ids = |flags: Flags| parsed(&flags, &context).map(|rules| (rules.proxy_uids, rules.proxy_gids));
    assert_eq!(ids(Flags::default()), Ok((vec![1500], vec![1500])));
    assert_eq!(ids(Flags { proxy_uid: "envoy,9".into(), ..Flags::default() }), Ok((vec![7, 9], vec![8, 9])));
    assert_eq!(ids(Flags { proxy_gid: "envoy".into(), ..Flags::default() }), Ok((vec![1500], vec![8])));
    let nobody = ids(Flags { proxy_uid: "nobody".into(), ..Flags::default() });
    let expected = "--proxy-uid: \"nobody\" where a user's number, or the name of one that is known is expected";
    assert_eq!(nobody, Err(expected.into()));
    assert_eq!(rules(|_| ()).map(|rules| (rules.proxy_uids, rules.proxy_gids)), Ok((vec![1337], vec![1337])));
    assert_eq!(
        rules(|flags| flags.proxy_uid = "4".into()).map(|rules| (rules.proxy_uids, rules.proxy_gids)),
        Ok((vec![4], vec![4]))
    );
}

#[test]
fn name_servers_come_from_resolv_conf() {
    let dns = |resolv_conf: &str, redirect_dns, capture_all_dns| {
        let flags = Flags { redirect_dns, capture_all_dns, ..Flags::default() };
        parsed(&flags, &FlagContext { resolv_conf, ..FlagContext::NOWHERE }).map(|rules| rules.dns)
    };
    let these = |servers: &[&str]| {
        let servers = servers.iter().map(|server| server.parse().unwrap()).collect();
        Ok(Some(Dns { port: 15053, servers: DnsServers::These(servers) }))
    };
    let text = "# nameserver 1.1.1.1\nsearch a b\nnameserver 10.96.0.10\n nameserver fe80::1%eth0 # here\nnameserver ::ffff:10.96.0.10\noptions ndots:5\n";
    assert_eq!(dns(text, true, false), these(&["10.96.0.10", "fe80::1"]));
    assert_eq!(dns(text, true, true), Ok(Some(Dns { port: 15053, servers: DnsServers::All })));
    assert_eq!(dns(text, false, false), Ok(None));
    assert_eq!(dns(text, false, true), Ok(None));
    assert_eq!(dns("search a\n", true, false), Ok(None));
    let expected = "resolv.conf, nameserver: \"10.96\" where an IP address is expected";
    assert_eq!(dns("nameserver 10.96\n", true, false), Err(expected.into()));
    assert_eq!(dns("nameserver 10.96\n", true, true).map(drop), Ok(()));
}

#[test]
fn a_wrong_flag_is_named_with_its_value() {
    const PORT: &str = "a port from 1 to 65535";
    const RANGE: &str = "a range such as 10.0.0.0/8 or fd00::/8";
    const INTERFACE: &str = "the full name of an interface, such as eth0";
    let check = |name: &str, wrong: &str, field: fn(&mut Flags) -> &mut String, found: &str, expected: &str| {
        let error = rules(|flags| *field(flags) = wrong.into()).unwrap_err();
        assert_eq!(error, format!("{name}: {found:?} where {expected} is expected"));
    };
    check("--envoy-port", "", |f| &mut f.envoy_port, "", PORT);
    check("--envoy-port", "0", |f| &mut f.envoy_port, "0", PORT);
    check("--inbound-capture-port", "70000", |f| &mut f.inbound_capture_port, "70000", PORT);
    check("--inbound-tunnel-port", "+1", |f| &mut f.inbound_tunnel_port, "+1", PORT);
    check("--istio-inbound-ports", "80,*", |f| &mut f.istio_inbound_ports, "*", PORT);
    check("--istio-local-exclude-ports", "*", |f| &mut f.istio_local_exclude_ports, "*", PORT);
    check("--istio-outbound-ports", "8000:9000", |f| &mut f.istio_outbound_ports, "8000:9000", PORT);
    check("--istio-local-outbound-ports-exclude", "x", |f| &mut f.istio_local_outbound_ports_exclude, "x", PORT);
    check("--istio-service-cidr", "*,10.0.0.0/8", |f| &mut f.istio_service_cidr, "*", RANGE);
    check("--istio-service-cidr", "10.0.0.1", |f| &mut f.istio_service_cidr, "10.0.0.1", RANGE);
    check("--istio-service-cidr", "::ffff:10.0.0.0/104", |f| &mut f.istio_service_cidr, "::ffff:10.0.0.0/104", RANGE);
    check("--istio-service-exclude-cidr", "*", |f| &mut f.istio_service_exclude_cidr, "*", RANGE);
    check("--istio-exclude-interfaces", "eth+", |f| &mut f.istio_exclude_interfaces, "eth+", INTERFACE);
    check("--istio-exclude-interfaces", "a/b", |f| &mut f.istio_exclude_interfaces, "a/b", INTERFACE);
    check("--kube-virt-interfaces", "0123456789abcdef", |f| &mut f.kube_virt_interfaces, "0123456789abcdef", INTERFACE);
    let group = "a group's number, or the name of one that is known";
    check("--proxy-gid", ",", |f| &mut f.proxy_gid, ",", group);
    check("--proxy-gid", "envoy", |f| &mut f.proxy_gid, "envoy", group);
    check("ISTIO_OUTBOUND_OWNER_GROUPS", "*,1", |f| &mut f.owner_groups, "*", group);
    check("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "-1", |f| &mut f.owner_groups_exclude, "-1", group);
    let cidr = "127.0.0.0/8";
    check("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", cidr, |f| &mut f.outbound_ipv4_loopback_cidr, cidr, "127.0.0.1/32");
    let mode = rules(|flags| flags.istio_inbound_interception_mode = "TPROXY".into()).unwrap_err();
    assert!(mode.starts_with("--istio-inbound-interception-mode: \"TPROXY\" where REDIRECT ("), "{mode}");
}

fn annotated(pairs: &[(&str, &str)]) -> Result<Rules, String> {
    let annotations: BTreeMap<_, _> = pairs.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
    annotations::rules(&annotations).map_err(|invalid| invalid.to_string())
}

#[test]
fn every_annotation_has_its_place() {
    let found = annotated(&[
        ("traffic.sidecar.istio.io/includeInboundPorts", "*"),
        ("traffic.sidecar.istio.io/excludeInboundPorts", "8081, 15021"),
        ("traffic.sidecar.istio.io/includeOutboundIPRanges", "10.0.0.0/8"),
        ("traffic.sidecar.istio.io/excludeOutboundIPRanges", "10.9.0.0/16,fd09::/16"),
        ("traffic.sidecar.istio.io/includeOutboundPorts", "443"),
        ("traffic.sidecar.istio.io/excludeOutboundPorts", "5432"),
        ("traffic.sidecar.istio.io/excludeInterfaces", "net1"),
        ("traffic.sidecar.istio.io/kubevirtInterfaces", "k6t-eth0"),
        ("sidecar.istio.io/interceptionMode", "REDIRECT"),
        ("prometheus.io/port", "what it likes"),
    ]);
    let expected = Rules {
        include_outbound_ranges: Ranges::These(vec!["10.0.0.0/8".parse().unwrap()]),
        exclude_outbound_ranges: vec!["10.9.0.0/16".parse().unwrap(), "fd09::/16".parse().unwrap()],
        include_outbound_ports: vec![443],
        exclude_outbound_ports: vec![5432],
        inbound_ports: InboundPorts::AllBut(vec![15090, 15021, 15020, 8081]),
        exclude_interfaces: vec!["net1".into()],
        virtual_interfaces: vec!["k6t-eth0".into()],
        ..defaults::rules()
    };
    assert_eq!(found, Ok(expected));
}

#[test]
fn an_empty_annotation_is_not_one_that_is_missing() {
    let none = annotated(&[
        ("traffic.sidecar.istio.io/includeInboundPorts", ""),
        ("traffic.sidecar.istio.io/includeOutboundIPRanges", ""),
    ])
    .unwrap();
    assert_eq!(none.inbound_ports, InboundPorts::Only(vec![]));
    assert_eq!(none.include_outbound_ranges, Ranges::These(vec![]));
}

#[test]
fn the_newer_name_of_the_virtual_interfaces_counts() {
    let old = ("traffic.sidecar.istio.io/kubevirtInterfaces", "old0");
    let interfaces = |pairs: &[(&str, &str)]| annotated(pairs).unwrap().virtual_interfaces;
    assert_eq!(interfaces(&[old]), ["old0"]);
    assert_eq!(interfaces(&[old, ("istio.io/reroute-virtual-interfaces", "new0")]), ["new0"]);
    assert!(interfaces(&[old, ("istio.io/reroute-virtual-interfaces", "")]).is_empty());
}

#[test]
fn a_wrong_annotation_is_named_with_its_value() {
    let port = annotated(&[("traffic.sidecar.istio.io/excludeOutboundPorts", "5432,http")]).unwrap_err();
    let expected = "metadata.annotations[traffic.sidecar.istio.io/excludeOutboundPorts]: \"http\" where a port from 1 \
        to 65535 is expected";
    assert_eq!(port, expected);
    let unknown = annotated(&[("traffic.sidecar.istio.io/excludeOutboundPort", "5432")]).unwrap_err();
    assert!(unknown.contains("\"excludeOutboundPort\" where one of includeInboundPorts, "), "{unknown}");
    let mode = annotated(&[("sidecar.istio.io/interceptionMode", "NONE")]).unwrap_err();
    assert!(mode.starts_with("metadata.annotations[sidecar.istio.io/interceptionMode]: \"NONE\" where "), "{mode}");
}

/// The error's list of known names is complete.
#[test]
fn the_known_annotations_are_those_that_are_told() {
    let unknown = annotated(&[("traffic.sidecar.istio.io/x", "")]).unwrap_err();
    let told = unknown.split("one of ").nth(1).unwrap().replace(" and ", ", ").replace(" is expected", "");
    let told: Vec<_> = told.split(", ").collect();
    assert_eq!(told.len(), 8);
    for name in told {
        assert_eq!(annotated(&[(&format!("traffic.sidecar.istio.io/{name}"), "")]).map(drop), Ok(()), "{name}");
    }
}
