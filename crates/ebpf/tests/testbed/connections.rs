//! Programs in namespaces that dial Services: which backend they reach, what peer they see, what errors they get.

use crate::installs::PROGRAMS;
use crate::node::{self, Node, backend};
use crate::sockets::{at, dial, until};
use rustix::net::{AddressFamily, SocketType, sockopt};
use sidestep_ebpf::plane::Counters;
use sidestep_ebpf::services;
use sidestep_mesh::address::Endpoint;
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_mesh::object::{Object, Selection};
use sidestep_mesh::plane::{FrontendKey, Scope};
use sidestep_mesh::state::Change;
use sidestep_testkit::Pod;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const VIP: &str = "10.96.0.10";
const VIP6: &str = "fd00:96::10";

#[test]
fn tcp_reaches_every_backend_and_the_peer_is_the_service() {
    for (vip, v6) in [(VIP, false), (VIP6, true)] {
        let mut node = Node::new();
        let (client, backends) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod()]);
        let wanted: BTreeSet<IpAddr> = backends.iter().map(|pod| if v6 { pod.v6 } else { pod.v4 }).collect();
        let _servers: Vec<_> = backends.iter().map(|pod| backend(pod, 8080)).collect();
        node.service("web", Tcp, vip, 80, wanted.iter().map(|ip| (*ip, 8080)));
        let reached: BTreeSet<IpAddr> = client.namespace.run(|| {
            (0..40)
                .map(|_| dial(at(vip, 80)).unwrap())
                .map(|(who, peer)| {
                    assert_eq!(peer, at(vip, 80));
                    who
                })
                .collect()
        });
        assert_eq!(reached, wanted);
        assert_eq!(node.counters("web"), Counters { picks: 40, ..Counters::default() });
    }
}

#[test]
fn the_kernel_of_this_machine_lacks_nothing() {
    assert_eq!(sidestep_ebpf::probe::missing(), Vec::<String>::new());
}

/// Another process than the installing one sees the same tables.
#[test]
fn tables_are_found_by_their_pins() {
    let mut node = Node::new();
    let server = node.testbed.pod();
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    let maps = services::tables(&node.options.pins).unwrap().expect("they are installed");
    let key = FrontendKey { address: at(VIP, 80).ip().into(), port: 80, protocol: Tcp, scope: Scope::Address };
    let frontend = maps.frontend(&key).unwrap().expect("the Service is there");
    let reached: Vec<_> = maps.backends_of(&frontend).into_iter().map(|number| maps.endpoint(number)).collect();
    assert_eq!(reached, [Endpoint::new(server.v4, 8080)]);
    services::remove(&node.options.pins).unwrap();
    assert!(services::tables(&node.options.pins).unwrap().is_none());
}

#[test]
fn a_mapped_address_on_a_v6_socket_is_the_v4_service() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _listener = backend(&server, 8080);
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    let (who, peer) = client.namespace.run(|| dial(at(&format!("::ffff:{VIP}"), 80)).unwrap());
    assert_eq!((who, peer), (server.v4, at(&format!("::ffff:{VIP}"), 80)));
}

#[test]
fn without_endpoints_a_connection_is_refused_at_once() {
    let mut node = Node::new();
    let client = node.testbed.pod();
    node.service("web", Tcp, VIP, 80, []);
    node.service("dns", Udp, VIP, 53, []);
    client.namespace.run(|| {
        assert_eq!(dial(at(VIP, 80)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        assert_eq!(socket.send_to(b"?", at(VIP, 53)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(socket.connect(at(VIP, 53)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
    assert_eq!(node.reason("refused"), 3);
    assert_eq!((node.counters("web").refused, node.counters("dns").refused), (1, 2));
}

#[test]
fn what_is_no_service_is_left_alone() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _listener = backend(&server, 8080);
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    let direct = SocketAddr::new(server.v4, 8080);
    assert_eq!(client.namespace.run(|| dial(direct).unwrap()), (server.v4, direct));
    assert_eq!(node.reason("translated"), 0);
}

#[test]
fn a_client_keeps_its_backend_while_affinity_lasts() {
    let mut node = Node::new();
    let (one, other) = (node.testbed.pod(), node.testbed.pod());
    let pods: Vec<_> = (0..4).map(|_| node.testbed.pod()).collect();
    let _servers: Vec<_> = pods.iter().map(|pod| backend(pod, 8080)).collect();
    let mut service = node::plain_service("web", Tcp, VIP, 80);
    service.affinity_seconds = Some(1);
    node.change(Change::Put(Object::Service(service)));
    node.endpoints("web", Tcp, pods.iter().map(|pod| (pod.v4, 8080)));
    let dialled = |pod: &Pod| -> BTreeSet<IpAddr> {
        pod.namespace.run(|| (0..20).map(|_| dial(at(VIP, 80)).unwrap().0).collect())
    };
    assert_eq!((dialled(&one).len(), dialled(&other).len()), (1, 1));
    assert_eq!(node.counters("web"), Counters { picks: 40, affinity_hits: 38, refused: 0 });
    // The backend goes: the client gets another one, and keeps it. The affinity expires: any backend.
    let before = dialled(&one).pop_first().unwrap();
    node.endpoints("web", Tcp, pods.iter().filter(|pod| pod.v4 != before).map(|pod| (pod.v4, 8080)));
    let after = dialled(&one);
    assert!(after.len() == 1 && !after.contains(&before));
    let rested = (0..30).map(|_| {
        std::thread::sleep(Duration::from_millis(1100)); // longer than the affinity
        dialled(&one).pop_first().unwrap()
    });
    assert!(rested.take_while(|who| after.contains(who)).count() < 30);
}

#[test]
fn node_ports_answer_at_the_node_and_at_its_loopback_only_there() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _listener = backend(&server, 8080);
    let mut service = node::plain_service("web", Tcp, VIP, 80);
    service.ports[0].node_port = Some(30080);
    node.change(Change::Put(Object::Service(service)));
    node.endpoints("web", Tcp, [(server.v4, 8080)]);
    let own = BTreeSet::from([at("10.244.0.1", 0).ip().into()]);
    node.maps.set_node_addresses(&own, |_| true).unwrap();
    assert_eq!(client.namespace.run(|| dial(at("10.244.0.1", 30080)).unwrap().0), server.v4);
    assert_eq!(node.testbed.node.run(|| dial(at("127.0.0.1", 30080)).unwrap().0), server.v4);
    node.maps.set_node_addresses(&own, |_| false).unwrap();
    assert!(client.namespace.run(|| dial(at("10.244.0.1", 30080))).is_err());
    assert!(node.maps.node_addresses().unwrap().is_empty());
    for (pod, to) in [(&client, "127.0.0.1"), (&client, "10.244.0.99")] {
        assert!(pod.namespace.run(|| dial(at(to, 30080))).is_err(), "{to}");
    }
    // The port is taken on the node, but not in a pod.
    let bind = || TcpListener::bind("0.0.0.0:30080").map(drop).map_err(|error| error.kind());
    assert_eq!(node.testbed.node.run(bind), Err(ErrorKind::AddrInUse));
    assert_eq!(client.namespace.run(bind), Ok(()));
    assert_eq!(node.testbed.node.run(|| TcpListener::bind("0.0.0.0:30081").map(drop).map_err(|e| e.kind())), Ok(()));
}

#[test]
fn two_services_with_one_backend_can_be_dialled_from_one_source_port() {
    let mut node = Node::new();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod()]);
    let _servers: Vec<_> = pods.iter().map(|pod| backend(pod, 8080)).collect();
    for (name, vip) in [("one", "10.96.0.1"), ("two", "10.96.0.2")] {
        node.service(name, Tcp, vip, 80, pods.iter().map(|pod| (pod.v4, 8080)));
    }
    let from_port = |to: SocketAddr| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        rustix::net::bind(&socket, &at("0.0.0.0", 40000)).unwrap();
        rustix::net::connect(&socket, &to).map(|()| TcpStream::from(socket))
    };
    let failed = client.namespace.run(|| {
        let pair = |_: &usize| {
            let first = from_port(at("10.96.0.1", 80)).unwrap();
            let second = from_port(at("10.96.0.2", 80));
            // A reset, since an ordinary end would keep the tuple for a minute.
            for socket in [Some(&first), second.as_ref().ok()].into_iter().flatten() {
                sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
            }
            second.is_err()
        };
        (0..100).filter(pair).count()
    });
    // All four tries fail with probability 1/16, so about 6 of 100 pairs do; more than 30 have a probability below 1e-10.
    assert!(failed <= 30, "{failed} of 100");
    assert!(node.reason("tuple-in-use") > 0);
}

#[test]
fn weights_and_open_connections_decide_where_it_is_asked_for() {
    let mut node = Node::new();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod()]);
    let _servers: Vec<_> = pods.iter().map(|pod| backend(pod, 8080)).collect();
    let mut service = node::plain_service("web", Tcp, VIP, 80);
    service.selection = Selection::LeastConnections;
    node.change(Change::Put(Object::Service(service)));
    node.endpoints("web", Tcp, pods.iter().map(|pod| (pod.v4, 8080)));
    let open: Vec<TcpStream> =
        client.namespace.run(|| (0..20).map(|_| TcpStream::connect(at(VIP, 80)).unwrap()).collect());
    let active = |pod: &Pod| {
        let endpoint = Endpoint::new(pod.v4, 8080);
        node.maps.load(node.reconciler.backend(&endpoint).unwrap()).active
    };
    let (one, two) = (active(&pods[0]), active(&pods[1]));
    assert_eq!(one + two, 20);
    // Two random choices among two backends are equal half of the time. Without the comparison, 20 choices would differ by 9 or
    // more in one of 20 runs.
    assert!(one.abs_diff(two) <= 8, "{one} and {two}");
    drop(open);
    assert_eq!((active(&pods[0]), active(&pods[1])), (0, 0));
}

#[test]
fn an_upgrade_takes_over_what_is_there_and_removal_leaves_nothing() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _listener = backend(&server, 8080);
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    let before = programs_attached(&node);
    assert_eq!(before.len(), PROGRAMS);
    let (maps, mut reconciler) = node::install(&node.options);
    node.maps = maps;
    let after = programs_attached(&node);
    assert!(after.len() == PROGRAMS && before.is_disjoint(&after), "every program is a new one");
    assert_eq!(client.namespace.run(|| dial(at(VIP, 80)).unwrap().0), server.v4);
    // The Service is not wanted any more.
    reconciler.complete(&mut node.maps, 0).unwrap();
    assert!(client.namespace.run(|| dial(at(VIP, 80))).is_err());
    services::remove(&node.options.pins).unwrap();
    // The kernel detaches a program some time after the last name of its link is removed.
    until("no program is attached", || programs_attached(&node).is_empty());
}

/// Ids of the programs that are attached to the testbed's cgroup, according to bpftool.
fn programs_attached(node: &Node) -> BTreeSet<u32> {
    let cgroup = node.options.cgroup.to_str().unwrap();
    let shown =
        std::process::Command::new("/usr/sbin/bpftool").args(["-j", "cgroup", "show", cgroup]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    text.split("\"id\":").skip(1).map(|rest| rest.split(',').next().unwrap().parse().unwrap()).collect()
}

/// The cluster IP leads only to this node's backend, the external address to all three.
#[test]
fn affinity_lasts_at_each_policy_and_reaches_from_one_to_the_other() {
    let mut node = Node::new();
    let (clients, pods): (Vec<Pod>, Vec<Pod>) =
        ((0..6).map(|_| node.testbed.pod()).collect(), (0..3).map(|_| node.testbed.pod()).collect());
    let _servers: Vec<_> = pods.iter().map(|pod| backend(pod, 8080)).collect();
    let mut service = node::plain_service("web", Tcp, VIP, 80);
    (service.affinity_seconds, service.internal_local) = (Some(600), true);
    service.external_ips = vec!["192.0.2.1".parse().unwrap()];
    node.change(Change::Put(Object::Service(service)));
    let mut slice = node::slice("web", Tcp, pods.iter().map(|pod| (pod.v4, 8080)));
    slice.endpoints[0].node = Some("node".into());
    node.change(Change::Put(Object::Slice(slice)));
    for (n, client) in clients.iter().enumerate() {
        client.namespace.run(|| {
            let (inside, outside) = (at(VIP, 80), at("192.0.2.1", 80));
            let first = dial(if n % 2 == 0 { inside } else { outside }).unwrap().0;
            for _ in 0..6 {
                assert_eq!(dial(inside).unwrap().0, pods[0].v4);
                assert_eq!(dial(outside).unwrap().0, first);
            }
        });
    }
}
