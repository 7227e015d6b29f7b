//! Each rule of capture, and the traps around it.

use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_mesh::capture::defaults;
use sidestep_mesh::capture::inbound::{self, Inbound};
use sidestep_mesh::capture::outbound::{self, NOBODY, Outbound};
use sidestep_mesh::capture::probe::Probe;
use sidestep_mesh::capture::rules::{Dns, DnsServers, InboundPorts, OwnerGroups, Ranges, Rules};
use sidestep_mesh::capture::verdict::{Action, Rule, Verdict};

const PROXY: u32 = 1337;
const PROGRAM: u32 = 1000;
const CAPTURED: Action = Action::Outbound(15001);
const RECEIVED: Action = Action::Inbound(15006);
const DNS: Action = Action::Dns(15053);

fn rules(change: impl FnOnce(&mut Rules)) -> Rules {
    let mut rules = defaults::rules();
    change(&mut rules);
    rules
}

fn ranges(texts: &[&str]) -> Vec<ipnet::IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn with_dns(servers: DnsServers) -> Rules {
    rules(|rules| rules.dns = Some(Dns { port: 15053, servers }))
}

fn servers(texts: &[&str]) -> DnsServers {
    DnsServers::These(texts.iter().map(|text| text.parse().unwrap()).collect())
}

/// A program's TCP connection that leaves by eth0.
fn to(destination: &str) -> Outbound<'static> {
    let destination = destination.parse().unwrap();
    Outbound { protocol: Tcp, destination, source: None, interface: "eth0", uid: PROGRAM, gid: PROGRAM }
}

/// The same within the pod.
fn within(destination: &str) -> Outbound<'static> {
    Outbound { interface: "lo", ..to(destination) }
}

fn by(owner: (u32, u32), probe: Outbound<'static>) -> Outbound<'static> {
    Outbound { uid: owner.0, gid: owner.1, ..probe }
}

fn udp(probe: Outbound<'static>) -> Outbound<'static> {
    Outbound { protocol: Udp, ..probe }
}

fn from(source: &str, probe: Outbound<'static>) -> Outbound<'static> {
    Outbound { source: Some(source.parse().unwrap()), ..probe }
}

#[track_caller]
fn check(rules: &Rules, probe: Outbound, rule: Rule, action: Action) {
    assert_eq!(outbound::verdict(rules, &probe), Verdict { action, rule }, "{probe:?}");
}

#[track_caller]
fn bypasses(rules: &Rules, probe: Outbound, rule: Rule) {
    check(rules, probe, rule, Action::Bypass);
}

// --- what the pod sends ---------------------------------------------------------------------------------------------

#[test]
fn without_annotations_everything_outside_is_captured() {
    let rules = defaults::rules();
    for destination in ["192.0.2.1:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1]:80"] {
        check(&rules, to(destination), Rule::OutputIncludedRange, CAPTURED);
        bypasses(&rules, udp(to(destination)), Rule::OutputNone);
        bypasses(&rules, by((PROXY, PROXY), to(destination)), Rule::OutputUser);
        bypasses(&rules, by((PROGRAM, PROXY), to(destination)), Rule::OutputGroup);
        check(&rules, by((NOBODY, NOBODY), to(destination)), Rule::OutputIncludedRange, CAPTURED);
    }
}

#[test]
fn rule_1_excluded_interfaces() {
    let rules = rules(|rules| rules.exclude_interfaces = vec!["net1".into(), "lo".into()]);
    bypasses(&rules, Outbound { interface: "net1", ..to("192.0.2.1:80") }, Rule::OutputInterface);
    bypasses(&rules, by((PROXY, PROXY), within("10.0.0.1:80")), Rule::OutputInterface);
    check(&rules, Outbound { interface: "net10", ..to("192.0.2.1:80") }, Rule::OutputIncludedRange, CAPTURED);
}

/// The exclusion also holds for UDP, and for the proxy's calls to its own pod.
#[test]
fn rule_2_excluded_ports() {
    let mut rules = with_dns(DnsServers::All);
    rules.exclude_outbound_ports = vec![53, 5432];
    rules.include_outbound_ports = vec![5432];
    for probe in [to("192.0.2.1:5432"), to("[2001:db8::1]:5432"), udp(to("192.0.2.1:53")), to("192.0.2.1:53")] {
        bypasses(&rules, probe, Rule::OutputExcludedPort);
    }
    bypasses(&rules, by((PROXY, PROXY), within("10.0.0.1:5432")), Rule::OutputExcludedPort);
}

#[test]
fn rule_3_the_proxy_towards_its_pod() {
    let rules = rules(|rules| rules.include_outbound_ranges = Ranges::These(ranges(&["127.0.0.0/8", "::1/128"])));
    for (source, destination) in
        [("127.0.0.6", "10.0.0.1:80"), ("::6", "[fd00::1]:80"), ("::ffff:127.0.0.6", "[::ffff:10.0.0.1]:80")]
    {
        bypasses(&rules, from(source, within(destination)), Rule::OutputPassthrough);
        bypasses(&rules, by((PROXY, PROXY), from(source, within(destination))), Rule::OutputPassthrough);
        bypasses(&rules, udp(from(source, within(destination))), Rule::OutputPassthrough);
        bypasses(&rules, by((PROXY, PROXY), from(source, to(destination))), Rule::OutputUser);
    }
    check(&rules, by((PROXY, PROXY), from("127.0.0.7", within("10.0.0.1:80"))), Rule::OutputUserToItself, RECEIVED);
    check(&rules, by((PROXY, PROXY), from("::7", within("[fd00::1]:80"))), Rule::OutputUserToItself, RECEIVED);
}

/// For a Service whose endpoint is the pod itself, the proxy reaches its own inbound port, as other pods do.
#[test]
fn rule_4a_the_proxy_calls_its_own_pod() {
    let rules = defaults::rules();
    let proxy = |destination| by((PROXY, PROXY), within(destination));
    for destination in ["10.0.0.1:80", "[fd00::1]:80", "[::ffff:10.0.0.1]:80", "127.0.0.2:80", "10.0.0.1:53"] {
        check(&rules, proxy(destination), Rule::OutputUserToItself, RECEIVED);
        bypasses(&rules, udp(proxy(destination)), Rule::OutputUser);
    }
    for destination in ["127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "10.0.0.1:15008", "0.0.0.0:80", "[::]:80"]
    {
        bypasses(&rules, proxy(destination), Rule::OutputUser);
    }
    bypasses(&rules, by((PROXY, PROXY), to("10.0.0.1:80")), Rule::OutputUser);
}

#[test]
fn rule_4a_leaves_dns_of_users_and_5a_does_not_of_groups() {
    let rules = with_dns(DnsServers::All);
    bypasses(&rules, by((PROXY, PROXY), within("10.0.0.1:53")), Rule::OutputUser);
    check(&rules, by((PROGRAM, PROXY), within("10.0.0.1:53")), Rule::OutputGroupToItself, RECEIVED);
    bypasses(&rules, by((PROGRAM, PROXY), within("127.0.0.1:53")), Rule::OutputGroup);
    // 4b comes before 5a.
    bypasses(&rules, by((PROGRAM, PROXY), within("10.0.0.1:80")), Rule::OutputOtherUser);
    let rules = Rules { proxy_uids: vec![], ..rules };
    check(&rules, by((PROGRAM, PROXY), within("10.0.0.1:80")), Rule::OutputGroupToItself, RECEIVED);
    bypasses(&rules, by((PROGRAM, PROXY), within("10.0.0.1:15008")), Rule::OutputGroup);
}

#[test]
fn rule_4b_programs_of_a_pod_among_themselves() {
    let rules = defaults::rules();
    for destination in ["10.0.0.1:80", "[fd00::1]:80", "127.0.0.1:80", "10.0.0.1:53"] {
        bypasses(&rules, within(destination), Rule::OutputOtherUser);
        bypasses(&rules, udp(within(destination)), Rule::OutputOtherUser);
        bypasses(&rules, by((NOBODY, NOBODY), within(destination)), Rule::OutputOtherUser);
    }
}

/// Since a name server may be within the pod.
#[test]
fn rule_4b_leaves_dns_to_rule_7() {
    let rules = with_dns(servers(&["127.0.0.1", "10.0.0.1"]));
    for probe in [within("127.0.0.1:53"), within("10.0.0.1:53"), within("[::ffff:127.0.0.1]:53")] {
        check(&rules, probe, Rule::OutputDns, DNS);
        check(&rules, udp(probe), Rule::OutputDns, DNS);
    }
    bypasses(&rules, within("10.0.0.1:54"), Rule::OutputOtherUser);
    // The rule then does not apply to UDP at all.
    bypasses(&rules, udp(within("10.0.0.1:54")), Rule::OutputNone);
    bypasses(&rules, udp(within("127.0.0.1:54")), Rule::OutputLoopback);
}

/// The ranges then decide: what is included is captured, but not 127.0.0.1 itself, by rule 8.
#[test]
fn rule_4b_is_left_out_where_loopback_is_included() {
    for (list, destination) in [
        (&["127.0.0.0/8"][..], "127.0.0.2:80"),
        (&["127.5.0.1/32", "10.0.0.0/8"], "10.0.0.1:80"),
        (&["::1/128", "10.0.0.0/8"], "10.0.0.1:80"),
        (&["127.5.0.1/32", "fd00::/8"], "[fd00::1]:80"),
    ] {
        let rules = rules(|rules| rules.include_outbound_ranges = Ranges::These(ranges(list)));
        check(&rules, within(destination), Rule::OutputIncludedRange, CAPTURED);
        bypasses(&rules, within("127.0.0.1:80"), Rule::OutputLoopback);
        bypasses(&rules, within("[::1]:80"), Rule::OutputLoopback);
        bypasses(&rules, by((PROXY, PROXY), within("127.0.0.1:80")), Rule::OutputUser);
    }
}

/// Only a range of loopback addresses counts, not a larger one that contains them.
#[test]
fn rule_4b_stays_where_loopback_is_included_among_others() {
    for list in [Ranges::All, Ranges::These(ranges(&["0.0.0.0/0", "::/0"])), Ranges::These(ranges(&["126.0.0.0/7"]))] {
        let rules = rules(|rules| rules.include_outbound_ranges = list);
        bypasses(&rules, within("127.0.0.2:80"), Rule::OutputOtherUser);
    }
}

/// Lines a, b and c of one user come before those of the next one, for whom the first user is "not this user".
#[test]
fn rule_4_takes_users_in_their_order() {
    let rules = rules(|rules| rules.proxy_uids = vec![7, 8]);
    let itself = "10.0.0.1:80";
    check(&rules, by((7, 0), within(itself)), Rule::OutputUserToItself, RECEIVED);
    bypasses(&rules, by((8, 0), within(itself)), Rule::OutputOtherUser);
    bypasses(&rules, by((8, 0), to("192.0.2.1:80")), Rule::OutputUser);
    let included = Rules { include_outbound_ranges: Ranges::These(ranges(&["127.0.0.0/8"])), ..rules };
    check(&included, by((8, 0), within(itself)), Rule::OutputUserToItself, RECEIVED);
}

#[test]
fn rule_5_decides_where_no_user_is_the_proxy() {
    let rules = rules(|rules| rules.proxy_uids = vec![]);
    check(&rules, by((PROXY, PROXY), within("10.0.0.1:80")), Rule::OutputGroupToItself, RECEIVED);
    bypasses(&rules, by((PROXY, PROGRAM), within("10.0.0.1:80")), Rule::OutputOtherGroup);
    check(&rules, by((PROXY, PROGRAM), to("192.0.2.1:80")), Rule::OutputIncludedRange, CAPTURED);
}

#[test]
fn rule_6_owner_groups() {
    let mut rules = with_dns(DnsServers::All);
    rules.owner_groups = OwnerGroups::AllBut(vec![202]);
    bypasses(&rules, by((PROGRAM, 202), to("192.0.2.1:80")), Rule::OutputOwnerGroup);
    bypasses(&rules, by((PROGRAM, 202), udp(to("192.0.2.1:53"))), Rule::OutputOwnerGroup);
    check(&rules, to("192.0.2.1:80"), Rule::OutputIncludedRange, CAPTURED);
    rules.owner_groups = OwnerGroups::Only(vec![202, 203]);
    check(&rules, by((PROGRAM, 203), to("192.0.2.1:80")), Rule::OutputIncludedRange, CAPTURED);
    bypasses(&rules, to("192.0.2.1:80"), Rule::OutputOwnerGroup);
    bypasses(&rules, by((NOBODY, NOBODY), to("192.0.2.1:80")), Rule::OutputOwnerGroup);
    rules.owner_groups = OwnerGroups::Only(vec![]);
    bypasses(&rules, udp(to("192.0.2.1:53")), Rule::OutputOwnerGroup);
}

#[test]
fn rule_7_dns() {
    let all = with_dns(DnsServers::All);
    for probe in [to("192.0.2.1:53"), to("[2001:db8::1]:53"), to("[::ffff:192.0.2.1]:53"), within("0.0.0.0:53")] {
        check(&all, probe, Rule::OutputDns, DNS);
        check(&all, udp(probe), Rule::OutputDns, DNS);
        bypasses(&all, by((PROXY, PROXY), udp(probe)), Rule::OutputUser);
    }
    bypasses(&all, udp(to("192.0.2.1:5353")), Rule::OutputNone);
    let one = with_dns(servers(&["10.96.0.10"]));
    check(&one, udp(to("10.96.0.10:53")), Rule::OutputDns, DNS);
    check(&one, udp(to("[::ffff:10.96.0.10]:53")), Rule::OutputDns, DNS);
    bypasses(&one, udp(to("10.96.0.11:53")), Rule::OutputNone);
    check(&one, to("10.96.0.11:53"), Rule::OutputIncludedRange, CAPTURED);
    bypasses(&one, udp(to("[2001:db8::1]:53")), Rule::OutputNone);
}

/// Then all rules are those without DNS capture, also for the proxy's calls and within the pod.
#[test]
fn rule_7_is_off_without_servers() {
    let rules = with_dns(servers(&[]));
    bypasses(&rules, udp(to("192.0.2.1:53")), Rule::OutputNone);
    check(&rules, by((PROXY, PROXY), within("10.0.0.1:53")), Rule::OutputUserToItself, RECEIVED);
    bypasses(&rules, udp(within("127.0.0.1:53")), Rule::OutputOtherUser);
}

#[test]
fn rule_8_loopback_by_any_interface() {
    let rules = rules(|rules| rules.include_outbound_ports = vec![80]);
    for destination in ["127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::]:80"] {
        bypasses(&rules, to(destination), Rule::OutputLoopback);
    }
    check(&rules, to("127.0.0.2:80"), Rule::OutputIncludedPort, CAPTURED);
}

#[test]
fn rules_9_to_11_destinations() {
    let rules = rules(|rules| {
        rules.exclude_outbound_ranges = ranges(&["10.9.0.7/16", "fd09::/16"]);
        rules.include_outbound_ports = vec![9999];
        rules.include_outbound_ranges = Ranges::These(ranges(&["10.0.0.0/8", "fd00::/8"]));
    });
    for destination in ["10.9.1.1:80", "10.9.1.1:9999", "[fd09::1]:9999", "[::ffff:10.9.1.1]:80"] {
        bypasses(&rules, to(destination), Rule::OutputExcludedRange);
    }
    check(&rules, to("192.0.2.1:9999"), Rule::OutputIncludedPort, CAPTURED);
    check(&rules, to("10.1.1.1:9999"), Rule::OutputIncludedPort, CAPTURED);
    check(&rules, to("10.1.1.1:80"), Rule::OutputIncludedRange, CAPTURED);
    check(&rules, to("[fd01::1]:80"), Rule::OutputIncludedRange, CAPTURED);
    bypasses(&rules, to("192.0.2.1:80"), Rule::OutputNone);
    bypasses(&rules, udp(to("10.1.1.1:9999")), Rule::OutputNone);
}

#[test]
fn an_empty_list_means_none() {
    let rules = rules(|rules| rules.include_outbound_ranges = Ranges::These(vec![]));
    bypasses(&rules, to("192.0.2.1:80"), Rule::OutputNone);
    check(&rules, by((PROXY, PROXY), within("10.0.0.1:80")), Rule::OutputUserToItself, RECEIVED);
}

/// Other implementations limit lists to 20 entries.
#[test]
fn the_last_of_a_thousand_counts_too() {
    let rules = rules(|rules| {
        rules.exclude_outbound_ports = (1..=1000).collect();
        rules.include_outbound_ranges = Ranges::These((0..1000u16).map(|i| range_of(i).parse().unwrap()).collect());
    });
    bypasses(&rules, to("10.3.231.1:1000"), Rule::OutputExcludedPort);
    check(&rules, to("10.3.231.1:1001"), Rule::OutputIncludedRange, CAPTURED);
    bypasses(&rules, to("10.3.232.1:1001"), Rule::OutputNone);
}

fn range_of(i: u16) -> String {
    format!("10.{}.{}.0/24", i >> 8, i & 255)
}

// --- what the pod receives ------------------------------------------------------------------------------------------

#[track_caller]
fn received(rules: &Rules, interface: &str, destination: &str, rule: Rule, action: Action) {
    let probe = Inbound { interface, destination: destination.parse().unwrap() };
    assert_eq!(inbound::verdict(rules, &probe), Verdict { action, rule }, "{probe:?}");
    assert_eq!(Probe::Inbound(probe).verdict(rules), Verdict { action, rule });
}

#[test]
fn without_annotations_everything_is_received_by_the_proxy_but_what_is_its_own() {
    let rules = defaults::rules();
    for ip in ["10.0.0.1", "[fd00::1]"] {
        received(&rules, "eth0", &format!("{ip}:80"), Rule::InputPort, RECEIVED);
        received(&rules, "eth0", &format!("{ip}:15008"), Rule::InputTunnel, Action::Bypass);
        for port in [15090, 15021, 15020] {
            received(&rules, "eth0", &format!("{ip}:{port}"), Rule::InputPort, Action::Bypass);
        }
    }
}

#[test]
fn a_list_of_inbound_ports_is_all_there_is() {
    let some = rules(|rules| rules.inbound_ports = InboundPorts::Only(vec![80, 15008]));
    received(&some, "eth0", "10.0.0.1:80", Rule::InputPort, RECEIVED);
    received(&some, "eth0", "10.0.0.1:81", Rule::InputNone, Action::Bypass);
    received(&some, "eth0", "10.0.0.1:15008", Rule::InputTunnel, Action::Bypass);
    let none = rules(|rules| rules.inbound_ports = InboundPorts::Only(vec![]));
    received(&none, "eth0", "10.0.0.1:80", Rule::InputNone, Action::Bypass);
}

#[test]
fn nothing_is_received_by_an_excluded_interface() {
    let rules = rules(|rules| rules.exclude_interfaces = vec!["net1".into()]);
    received(&rules, "net1", "10.0.0.1:80", Rule::InputInterface, Action::Bypass);
    received(&rules, "eth0", "10.0.0.1:80", Rule::InputPort, RECEIVED);
}

/// For a virtual machine's outbound traffic only the included ranges count. Its interface is tested before the excluded ones,
/// and its traffic never counts as inbound.
#[test]
fn a_virtual_machine_sends() {
    let all = rules(|rules| {
        rules.virtual_interfaces = vec!["k6t-eth0".into()];
        rules.exclude_interfaces = vec!["k6t-eth0".into()];
        rules.exclude_outbound_ports = vec![80];
        rules.exclude_outbound_ranges = ranges(&["192.0.2.0/24"]);
    });
    for destination in ["192.0.2.1:80", "192.0.2.1:15008", "[2001:db8::1]:80"] {
        received(&all, "k6t-eth0", destination, Rule::InputVirtual, CAPTURED);
    }
    let some = Rules { include_outbound_ranges: Ranges::These(ranges(&["10.0.0.0/8"])), ..all };
    received(&some, "k6t-eth0", "10.1.1.1:80", Rule::InputVirtual, CAPTURED);
    received(&some, "k6t-eth0", "[::ffff:10.1.1.1]:80", Rule::InputVirtual, CAPTURED);
    received(&some, "k6t-eth0", "192.0.2.1:80", Rule::InputVirtual, Action::Bypass);
}

#[test]
fn a_rule_is_named_as_an_operator_knows_it() {
    assert_eq!(Rule::OutputExcludedPort.to_string(), "OUTPUT 2: excludeOutboundPorts");
    assert_eq!(Rule::OutputOtherUser.to_string(), "OUTPUT 4b: within the pod, not by the proxy's user");
    assert_eq!(Rule::InputNone.to_string(), "INPUT: no rule");
    let probe = Probe::Outbound(to("192.0.2.1:80"));
    assert_eq!(probe.verdict(&defaults::rules()).rule.to_string(), "OUTPUT 11: includeOutboundIPRanges");
}
