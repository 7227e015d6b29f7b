//! Routes and neighbours.

use crate::wire::{HERE, THERE, Wire, flow, until};
use sidestep_device::path::{Flow, Freshness, NoPath, Path, refresh, resolve};
use sidestep_device::watch::{Change, Watch};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const V4: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const V6: [&str; 2] = ["fd00::1", "fd00::2"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn find(wire: &Wire, ends: [&str; 2]) -> Result<Path, NoPath> {
    wire.here.run(|| resolve(&between(ends)))
}

fn between(ends: [&str; 2]) -> Flow {
    flow(ip(ends[0]), ip(ends[1]))
}

fn found(wire: &Wire, ends: [&str; 2]) -> Path {
    found_for(wire, &between(ends))
}

/// Asks again as long as the neighbour is unknown.
fn found_for(wire: &Wire, flow: &Flow) -> Path {
    let mut path = None;
    until("the neighbour does not answer", || match wire.here.run(|| resolve(flow)) {
        Ok(found) => {
            path = Some(found);
            true
        }
        Err(NoPath::Unresolved(_)) => false,
        Err(error) => panic!("{error}: {error:?}"),
    });
    path.unwrap()
}

fn index(wire: &Wire) -> u32 {
    wire.here.run(|| sidestep_device::probe("eth0").unwrap().index)
}

#[test]
fn a_neighbour_is_asked_for_and_found() {
    let wire = Wire::new();
    for ends in [V4, V6] {
        let mut watch = wire.here.run(|| Watch::open().unwrap());
        assert!(matches!(find(&wire, ends), Err(NoPath::Unresolved(hop)) if hop == ip(ends[1])));
        let known = Change::Neighbour { device: index(&wire), address: ip(ends[1]), link: Some(THERE) };
        until("the watch says nothing", || watch.changes().unwrap().contains(&known));
        let path = find(&wire, ends).unwrap();
        assert_eq!(path, Path { neighbour: path.neighbour, ..expected(&wire, ends) });
    }
    let mapped = find(&wire, ["::ffff:10.0.0.1", "::ffff:10.0.0.2"]).unwrap();
    assert_eq!(mapped.remote, ip("10.0.0.2"));
}

fn expected(wire: &Wire, ends: [&str; 2]) -> Path {
    Path {
        local: ip(ends[0]),
        remote: ip(ends[1]),
        device: index(wire),
        next_hop: ip(ends[1]),
        source: HERE,
        destination: THERE,
        mtu: 1500,
        link_mtu: 1500,
        neighbour: Freshness::Confirmed,
        is_own: true,
    }
}

#[test]
fn a_router_and_the_mtu_of_a_route_are_found() {
    let wire = Wire::new();
    wire.here.ip("route add 192.0.2.0/24 via 10.0.0.2 mtu 1300");
    wire.here.ip("-6 route add 2001:db8::/32 via fd00::2 mtu 1320");
    wire.here.ip("route add 198.51.100.0/24 via inet6 fd00::2");
    for (ends, hop, mtu) in [
        (["10.0.0.1", "192.0.2.9"], "10.0.0.2", 1300),
        (["fd00::1", "2001:db8::9"], "fd00::2", 1320),
        (["10.0.0.1", "198.51.100.9"], "fd00::2", 1500),
    ] {
        let path = found(&wire, ends);
        assert_eq!((path.next_hop, path.mtu, path.destination), (ip(hop), mtu, THERE));
    }
}

#[test]
fn what_leads_to_no_other_host_is_refused() {
    let wire = Wire::new();
    wire.here.ip("route add unreachable 192.0.2.0/25");
    wire.here.ip("route add blackhole 192.0.2.128/25");
    let error = |remote| find(&wire, ["10.0.0.1", remote]).unwrap_err();
    for remote in ["203.0.113.1", "192.0.2.1", "192.0.2.129"] {
        assert!(matches!(error(remote), NoPath::NoRoute { .. }), "{remote}: {:?}", error(remote));
    }
    for remote in ["10.0.0.1", "10.0.0.255", "224.0.0.1"] {
        assert!(matches!(error(remote), NoPath::NotRemote(_)), "{remote}: {:?}", error(remote));
    }
    assert!(matches!(find(&wire, ["127.0.0.1", "127.0.0.2"]).unwrap_err(), NoPath::NotRemote(_)));
}

/// The address of a pod is no address of the node: the node routes the pod's packets.
#[test]
fn the_path_of_a_pods_packets_is_the_one_that_the_node_forwards_them_by() {
    let wire = Wire::new();
    let pod = sidestep_testkit::Namespace::fresh();
    wire.here.ip(&format!("link add pod type veth peer eth0 netns {}", pod.name()));
    for link in ["pod", "eth0"] {
        let namespace = if link == "pod" { &wire.here } else { &pod };
        namespace.ip(&format!("link set {link} up"));
    }
    wire.here.ip("route add 10.1.0.7/32 dev pod");
    wire.here.ip("-6 route add fd01::7/128 dev pod");
    wire.here.run(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    });
    for ends in [["10.1.0.7", "10.0.0.2"], ["fd01::7", "fd00::2"]] {
        let path = found(&wire, ends);
        assert_eq!((path.device, path.source, path.destination), (index(&wire), HERE, THERE));
        assert!(!path.is_own);
    }
}

/// Source-based rules, of a host with two uplinks.
#[test]
fn rules_about_the_local_address_decide() {
    let wire = Wire::new();
    wire.here.ip("addr add 10.0.0.9/24 dev eth0");
    wire.here.ip("-6 addr add fd00::9/64 dev eth0 nodad");
    wire.here.ip("rule add from 10.0.0.9 lookup 77");
    wire.here.ip("-6 rule add from fd00::9 lookup 77");
    wire.here.ip("route add 192.0.2.0/24 via 10.0.0.2 mtu 1300 table 77");
    wire.here.ip("-6 route add 2001:db8::/32 via fd00::2 mtu 1320 table 77");
    for (local, other, remote, mtu) in
        [("10.0.0.9", "10.0.0.1", "192.0.2.9", 1300), ("fd00::9", "fd00::1", "2001:db8::9", 1320)]
    {
        assert_eq!(found(&wire, [local, remote]).mtu, mtu);
        assert!(matches!(find(&wire, [other, remote]), Err(NoPath::NoRoute { .. })));
    }
}

/// Two routers, and rules by which connections to the same address take either.
#[test]
fn rules_about_ports_the_user_and_the_class_decide() {
    let wire = Wire::new();
    wire.there.ip("addr add 10.0.0.3/24 dev eth0");
    wire.there.ip("-6 addr add fd00::3/64 dev eth0 nodad");
    for (family, local, net, remote, routers) in [
        ("-4", "10.0.0.1", "192.0.2.0/24", "192.0.2.9", ["10.0.0.2", "10.0.0.3"]),
        ("-6", "fd00::1", "2001:db8::/32", "2001:db8::9", ["fd00::2", "fd00::3"]),
    ] {
        let [usual, other] = routers.map(ip);
        wire.here.ip(&format!("{family} route add {net} via {usual}"));
        wire.here.ip(&format!("{family} route add {net} via {other} table 77"));
        let plain = between([local, remote]);
        let by_class = if family == "-4" { other } else { usual };
        for (rule, flow, router) in [
            ("dport 443 ipproto tcp", Flow { remote: SocketAddr::new(ip(remote), 443), ..plain }, other),
            ("sport 80 ipproto tcp", Flow { local: SocketAddr::new(ip(local), 80), ..plain }, other),
            ("dport 443 ipproto udp", Flow { remote: SocketAddr::new(ip(remote), 443), ..plain }, usual),
            ("uidrange 1000-1000", Flow { user: 1000, ..plain }, other),
            ("tos 0x10", Flow { traffic_class: 0x10, ..plain }, by_class),
        ] {
            wire.here.ip(&format!("{family} rule add {rule} lookup 77"));
            assert_eq!(found_for(&wire, &flow).next_hop, router, "{rule}");
            assert_eq!(found_for(&wire, &plain).next_hop, usual, "{rule}");
            wire.here.ip(&format!("{family} rule del {rule} lookup 77"));
        }
    }
}

/// Packets of the two ends of one connection leave by two devices, though both pods are on this host.
#[test]
fn rules_about_where_a_packet_came_in_decide() {
    use sidestep_testkit::hairpin::{CLIENT, DEVICES, Hairpin, SERVER};
    let hairpin = Hairpin::new();
    let ends = [(CLIENT.0.into(), SERVER.0.into()), (CLIENT.1.into(), SERVER.1.into())];
    for (client, server) in ends {
        for (device, (local, remote)) in DEVICES.into_iter().zip([(client, server), (server, client)]) {
            let mut path = None;
            until("the router does not answer", || {
                path = hairpin.host.run(|| resolve(&flow(local, remote))).ok();
                path.is_some()
            });
            let index = hairpin.host.run(|| sidestep_device::probe(device).expect("the device").index);
            assert_eq!(path.expect("a path").device, index, "{local} to {remote}");
        }
    }
}

/// The kernel sees no packet to the neighbour, and would let its entry grow stale and go.
#[test]
fn a_stale_neighbour_is_confirmed_after_a_refresh() {
    let wire = Wire::new();
    wire.here.run(|| {
        for family in ["ipv4", "ipv6"] {
            std::fs::write(format!("/proc/sys/net/{family}/neigh/eth0/delay_first_probe_time"), "1").unwrap();
        }
    });
    for ends in [V4, V6] {
        let path = found(&wire, ends);
        wire.here.ip(&format!("neigh change {} dev eth0 lladdr 02:00:00:00:00:02 nud stale", ends[1]));
        let stale = find(&wire, ends).unwrap();
        assert_eq!(stale, Path { neighbour: Freshness::Stale, ..path });
        wire.here.run(|| refresh(&stale)).unwrap();
        until("the neighbour is not confirmed", || {
            let path = find(&wire, ends).unwrap();
            path.neighbour == Freshness::Confirmed
        });
    }
}

/// With another link address than the neighbour would name if it were asked.
#[test]
fn an_entry_that_the_administrator_has_set_stays_after_a_refresh() {
    let wire = Wire::new();
    for ends in [V4, V6] {
        wire.here.ip(&format!("neigh replace {} dev eth0 lladdr 02:00:00:00:00:99 nud permanent", ends[1]));
        let path = find(&wire, ends).unwrap();
        wire.here.run(|| refresh(&path)).unwrap();
        wire.here.ip(&format!("neigh flush to {} dev eth0", ends[1]));
        assert_eq!(find(&wire, ends).unwrap(), path, "what is permanent is not flushed");
    }
}

/// The worker refreshes neighbours on the thread that serves all connections.
#[test]
fn the_number_of_neighbours_does_not_matter_for_a_refresh() {
    let wire = Wire::new();
    let paths = [V4, V6].map(|ends| found(&wire, ends));
    let few = shortest(&wire, &paths);
    let entry = "lladdr 02:00:00:00:00:99 dev eth0 nud permanent";
    let v4 = (0..2000).map(|n| format!("neigh add 10.7.{}.{} {entry}\n", n / 250, n % 250));
    let v6 = (0..2000).map(|n| format!("neigh add fd00::7:{n:x} {entry}\n"));
    in_batch(&wire, v4.chain(v6));
    let many = shortest(&wire, &paths);
    assert!(many < 10 * few, "500 refreshes take {many:?}; with two neighbours {few:?}");
    assert!([V4, V6].iter().zip(paths).all(|(ends, path)| find(&wire, *ends).unwrap().destination == path.destination));
    for absent in [["10.0.0.1", "10.0.0.77"], ["fd00::1", "fd00::77"]] {
        assert!(matches!(find(&wire, absent), Err(NoPath::Unresolved(_))));
    }
}

/// Of three times that 500 refreshes take: the machine may be busy.
fn shortest(wire: &Wire, paths: &[Path]) -> Duration {
    let measured = || {
        let began = Instant::now();
        (0..500).for_each(|n| refresh(&paths[n % paths.len()]).unwrap());
        began.elapsed()
    };
    wire.here.run(|| (0..3).map(|_| measured()).min()).unwrap()
}

fn in_batch(wire: &Wire, commands: impl Iterator<Item = String>) {
    let file = std::env::temp_dir().join(format!("{}-batch", wire.here.name()));
    std::fs::write(&file, commands.collect::<String>()).unwrap();
    wire.here.ip(&format!("-batch {}", file.display()));
    std::fs::remove_file(&file).unwrap();
}

/// Changes until one concerns the path.
fn concerning(watch: &mut Watch, path: &Path) -> Change {
    let mut found = None;
    until("the watch says nothing", || {
        found = watch.changes().unwrap().into_iter().find(|change| change.concerns(path));
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn each_change_that_makes_a_path_stale_is_noticed() {
    let wire = Wire::new();
    wire.here.ip("addr add 10.0.0.9/24 dev eth0");
    let path = found(&wire, ["10.0.0.9", "10.0.0.2"]);
    let six = found(&wire, V6);
    let mut watch = wire.here.run(|| Watch::open().unwrap());
    wire.here.ip("neigh change 10.0.0.2 dev eth0 nud stale");
    wire.here.ip("route add 10.77.0.0/16 via 10.0.0.2");
    wire.here.ip("link add other type veth peer name another");
    let changes = watch.changes().unwrap();
    assert!(changes.len() >= 3 && !changes.iter().any(|change| change.concerns(&path)), "{changes:?}");

    wire.here.ip("route add 10.0.0.2/32 dev eth0 metric 5");
    assert_eq!(concerning(&mut watch, &path), Change::Route { destination: ip("10.0.0.2"), prefix: 32 });
    wire.here.ip("-6 route add fd00::2/128 dev eth0");
    assert_eq!(concerning(&mut watch, &six), Change::Route { destination: ip("fd00::2"), prefix: 128 });
    wire.here.ip("neigh replace 10.0.0.2 dev eth0 lladdr 02:00:00:00:00:33 nud permanent");
    let moved = Change::Neighbour { device: path.device, address: path.next_hop, link: Some([2, 0, 0, 0, 0, 0x33]) };
    assert_eq!(concerning(&mut watch, &path), moved);
    wire.here.ip("neigh del 10.0.0.2 dev eth0");
    let gone = Change::Neighbour { device: path.device, address: path.next_hop, link: None };
    assert_eq!(concerning(&mut watch, &path), gone);
    wire.here.ip("rule add from 10.0.0.9 lookup 77");
    assert_eq!(concerning(&mut watch, &path), Change::Rules);
    wire.here.ip("link set eth0 mtu 1400");
    assert_eq!(concerning(&mut watch, &path), Change::Link { device: path.device, up: Some((HERE, 1400)) });
    watch.changes().unwrap();
    wire.here.ip("addr del 10.0.0.9/24 dev eth0");
    until("the watch says nothing", || watch.changes().unwrap().contains(&Change::AddressRemoved(ip("10.0.0.9"))));
    wire.here.ip("link set eth0 down");
    until("the watch says nothing", || {
        watch.changes().unwrap().contains(&Change::Link { device: path.device, up: None })
    });
}

/// A neighbour that has gone: the kernel asks in vain, and says so.
#[test]
fn a_neighbour_that_does_not_answer_is_reported() {
    let wire = Wire::new();
    wire.here.run(|| {
        for (name, value) in [("delay_first_probe_time", "1"), ("retrans_time_ms", "50"), ("ucast_solicit", "1")] {
            std::fs::write(format!("/proc/sys/net/ipv4/neigh/eth0/{name}"), value).unwrap();
        }
    });
    let path = found(&wire, V4);
    let mut watch = wire.here.run(|| Watch::open().unwrap());
    wire.there.ip("addr del 10.0.0.2/24 dev eth0");
    wire.here.ip("neigh change 10.0.0.2 dev eth0 lladdr 02:00:00:00:00:02 nud stale");
    wire.here.run(|| refresh(&path)).unwrap();
    let gone = Change::Neighbour { device: path.device, address: path.next_hop, link: None };
    assert_eq!(concerning(&mut watch, &path), gone);
}

#[test]
fn more_changes_than_are_kept_are_reported_as_an_overrun() {
    let wire = Wire::new();
    let path = found(&wire, V4);
    let mut watch = wire.here.run(|| Watch::open().unwrap());
    in_batch(&wire, (0..4000).map(|n| format!("route add 10.{}.{}.0/24 dev eth0\n", 100 + n / 250, n % 250)));
    until("no overrun", || {
        watch.changes().unwrap().iter().any(|change| *change == Change::Overrun && change.concerns(&path))
    });
}
