//! Files change, and connections follow.

use crate::agent::{Load, Node, VIP, at, dial, median, server};
use crate::yaml;
use sidestep_testkit::Pod;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

fn reached(client: &Pod) -> std::io::Result<IpAddr> {
    client.namespace.run(|| dial(at(VIP, 80)))
}

#[test]
fn connections_follow_the_files_within_100_ms() {
    let mut node = Node::with_agent();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod()]);
    let _servers: Vec<_> = pods.iter().map(server).collect();
    node.web([&pods[0]]);
    node.wait(|_| reached(&client).is_ok());
    let times: Vec<Duration> = (1..=21)
        .map(|round| {
            let wanted = &pods[round % 2];
            let begun = Instant::now();
            node.web([wanted]);
            node.wait(|_| reached(&client).is_ok_and(|who| who == wanted.v4));
            begun.elapsed()
        })
        .collect();
    assert!(median(&times) < Duration::from_millis(100), "{times:?}");
    // Without endpoints connections are refused. Without the Service its address is unreachable.
    node.web([]);
    node.wait(|_| reached(&client).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
    std::fs::remove_file(node.services().join("web.yaml")).unwrap();
    node.wait(|node| node.show("web").is_err());
    assert!(reached(&client).is_err_and(|error| error.kind() == ErrorKind::NetworkUnreachable));
}

#[test]
fn a_bad_file_disturbs_nothing_and_is_named() {
    let mut node = Node::with_agent();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let _server = server(&pod);
    node.web([&pod]);
    node.wait(|node| node.show("web").is_ok_and(|service| !service.ports.is_empty()));
    node.file(
        "web.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIPs: [10.96.0.10], port: 80}\n",
    );
    node.wait(|node| !node.status().unwrap().source.troubles.is_empty());
    let trouble = node.check().troubles.remove(0);
    assert!(trouble.place.ends_with("/services/web.yaml"), "{trouble:?}");
    assert_eq!(trouble.what, "document 1: spec.port: no such field");
    assert_eq!(client.namespace.run(|| dial(at(VIP, 80)).unwrap()), pod.v4);
    // Also with an agent that has never seen the valid file.
    node.kill();
    node.start();
    assert_eq!(client.namespace.run(|| dial(at(VIP, 80)).unwrap()), pod.v4);
    node.web([&pod]);
    node.wait(|node| node.check().is_well());
}

/// Like a Deployment that rolls without pause: endpoints change all the time, and each is a running server.
#[test]
fn under_a_thousand_changes_a_second_no_connection_fails() {
    let mut node = Node::with_agent();
    let clients = [node.testbed.pod(), node.testbed.pod()];
    let pods: Vec<Pod> = (0..6).map(|_| node.testbed.pod()).collect();
    let _servers: Vec<_> = pods.iter().map(server).collect();
    node.web(&pods);
    node.wait(|node| clients[0].namespace.run(|| dial(at(VIP, 80))).is_ok() && node.check().is_well());
    let load = Load::start(&clients);
    let begun = Instant::now();
    let before = node.status().unwrap().reconcile.runs;
    let changes = 3000;
    for round in 0..changes {
        // Between one and five of the six.
        let from = round % 6;
        node.web((from..from + 1 + round % 5).map(|i| &pods[i % 6]));
        let due = begun + Duration::from_millis(round as u64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let took = begun.elapsed();
    load.wait_for(100);
    let (failures, done) = load.stop();
    assert!(failures.is_empty(), "{} of {done}: {:?}", failures.len(), failures.first());
    let status = node.status().unwrap();
    let reason = |name: &str| status.reasons.iter().find(|count| count.reason == name).unwrap().count;
    assert_eq!((reason("backend-missing"), reason("refused"), status.reconcile.failures), (0, 0, 0));
    assert!(status.reconcile.runs > before);
    println!("{changes} changes in {took:.1?}, {} writes, {done} connections", status.reconcile.runs - before);
}

/// Other Services come and go, and their slots are reused.
#[test]
fn neighbours_that_come_and_go_disturb_nobody() {
    let mut node = Node::with_agent();
    let (clients, pods) = ([node.testbed.pod()], [node.testbed.pod(), node.testbed.pod()]);
    let _servers: Vec<_> = pods.iter().map(server).collect();
    node.web(&pods);
    node.wait(|_| clients[0].namespace.run(|| dial(at(VIP, 80))).is_ok());
    let load = Load::start(&clients);
    for round in 0..60 {
        let all: String = (1..=50)
            .filter(|n| (n + round) % 3 != 0)
            .map(|n| {
                let name = format!("s{n}");
                let endpoints: Vec<IpAddr> = (0..n % 7).map(|e| format!("10.1.{n}.{e}").parse().unwrap()).collect();
                yaml::service(&name, &format!("10.97.0.{n}"), 80, "") + &yaml::slice(&name, &endpoints, 80)
            })
            .collect();
        node.file("neighbours.yaml", &all);
        load.wait_for(5);
    }
    let (failures, done) = load.stop();
    assert!(failures.is_empty(), "{} of {done}: {:?}", failures.len(), failures.first());
    node.wait(|node| node.check().is_well());
}

/// A client that only sends is not told of anything: its datagrams go to another backend, also after a time without any backend.
#[test]
fn connected_udp_sockets_go_on_with_another_backend() {
    let mut node = Node::with_agent();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod()]);
    let udp = |pods: &[&Pod]| {
        let endpoints: Vec<IpAddr> = pods.iter().map(|pod| pod.v4).collect();
        let text = yaml::service("statsd", VIP, 8125, "") + &yaml::slice("statsd", &endpoints, 8125);
        text.replace("{port: 8125}", "{port: 8125, protocol: UDP}")
    };
    let hearers = [&pods[0], &pods[1]].map(|pod| {
        let socket = pod.namespace.run(|| UdpSocket::bind((pod.v4, 8125)).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    });
    let hears = |number: usize| assert_eq!(hearers[number].recv(&mut [0; 16]).unwrap(), 1);
    node.file("statsd.yaml", &udp(&[&pods[0]]));
    node.wait(|node| node.show("statsd").is_ok_and(|service| !service.ports.is_empty()));
    let socket = client.namespace.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect(at(VIP, 8125)).unwrap();
        socket
    });
    socket.send(b"1").unwrap();
    hears(0);
    node.file("statsd.yaml", &udp(&[&pods[1]]));
    node.wait(|node| node.status().unwrap().reconcile.moved_sockets == 1);
    socket.send(b"2").unwrap();
    hears(1);
    node.file("statsd.yaml", &udp(&[]));
    node.wait(|node| node.status().unwrap().reconcile.reclaimed_sockets == 1);
    assert_eq!(socket.send(b"3").unwrap_err().raw_os_error(), Some(rustix::io::Errno::DESTADDRREQ.raw_os_error()));
    node.file("statsd.yaml", &udp(&[&pods[0]]));
    node.wait(|node| node.status().unwrap().reconcile.moved_sockets == 2);
    let _ = socket.take_error().unwrap(); // clears ECONNABORTED
    socket.send(b"4").unwrap();
    hears(0);
    for line in ["sidestep_udp_sockets_moved_total 2", "sidestep_udp_sockets_reclaimed_total 1"] {
        assert!(node.metrics().lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn node_ports_answer_at_addresses_that_the_node_gets_later() {
    let mut node = Node::with_agent();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let _server = server(&pod);
    let service =
        yaml::service("web", VIP, 80, "  type: NodePort\n").replace("{port: 80}", "{port: 80, nodePort: 30080}");
    node.file("web.yaml", &(service + &yaml::slice("web", &[pod.v4], 8080)));
    let dialled = |ip: &str| client.namespace.run(|| dial(at(ip, 30080)));
    node.wait(|_| dialled("10.244.0.1").is_ok());
    assert!(dialled("10.244.200.1").is_err());
    node.testbed.node.ip("addr add 10.244.200.1/16 dev br0");
    node.wait(|_| dialled("10.244.200.1").is_ok_and(|who| who == pod.v4));
    node.testbed.node.ip("addr del 10.244.200.1/16 dev br0");
    node.wait(|_| dialled("10.244.200.1").is_err());
    let known: BTreeSet<String> = node.status().unwrap().node_addresses.into_iter().collect();
    assert_eq!(known, BTreeSet::from(["10.244.0.1".into(), "fd00:244::1".into()]));
}
