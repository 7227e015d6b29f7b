//! The same addresses in two network namespaces are two different connections.
//!
//! The test runs itself once more inside a new user and network namespace (no privileges are needed for that),
//! as a member that offers sockets with the very same tuple as the sockets out here.

mod common;

use common::{FakeMember, TestBroker, namespace, wait_for};
use rustix::net::{AddressFamily, SocketType, sockopt};
use sidestep_broker::listen::Address;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};

const BROKER: &str = "TEST_BROKER";
const PORTS: &str = "TEST_PORTS";

/// A connection between these two ports of 127.0.0.1.
fn pair(ports: [u16; 2]) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", ports[1])).expect("bind");
    let client = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("socket");
    sockopt::set_socket_reuseaddr(&client, true).expect("reuse");
    rustix::net::bind(&client, &SocketAddr::from(([127, 0, 0, 1], ports[0]))).expect("bind");
    rustix::net::connect(&client, &listener.local_addr().expect("address")).expect("connect");
    (client.into(), listener.accept().expect("accept").0)
}

fn free_ports() -> [u16; 2] {
    let held = [0, 0].map(|_| TcpListener::bind("127.0.0.1:0").expect("bind"));
    held.map(|listener| listener.local_addr().expect("address").port())
}

/// The part that runs inside.
fn inside(broker: &Address, ports: [u16; 2]) {
    namespace::raise_loopback();
    let (client, server) = pair(ports);
    let member = FakeMember::join(broker, 4096);
    member.offer(1, &server);
    // The offer outside is the mirror of this one; the end in here comes last and is the right one.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("told to go on");
    member.offer(2, &client);
    for _ in 0..2 {
        member.expect_link();
    }
    assert_eq!(member.expect_slot(1).slot, member.expect_slot(2).slot);
}

struct Inside(Child);

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn equal_tuples_in_two_namespaces_never_meet() {
    let settings = |name: &str| std::env::var(name).ok();
    if let (Some(broker), Some(ports)) = (settings(BROKER), settings(PORTS)) {
        let (a, b) = ports.split_once(' ').expect("two ports");
        return inside(&broker.parse().expect("address"), [a, b].map(|p| p.parse().expect("port")));
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let broker =
        TestBroker::at(Address::Path(dir.path().join("broker")), None, |settings| settings.across_namespaces = true);
    let ports = free_ports();
    let (client, _server) = pair(ports);
    let member = broker.join();
    member.offer(1, &client);
    let mut command = namespace::again("equal_tuples_in_two_namespaces_never_meet");
    command.env(BROKER, broker.address.to_string()).env(PORTS, format!("{} {}", ports[0], ports[1]));
    let mut child = Inside(command.stdin(Stdio::piped()).spawn().expect("unshare (util-linux) is there"));
    wait_for("both wait", || {
        assert_eq!(child.0.try_wait().expect("wait"), None, "the process inside failed");
        (broker.status().waiting_offers == 2).then_some(())
    });
    drop(child.0.stdin.take());
    assert!(child.0.wait().expect("wait").success());
    member.expect_silence(&broker);
    assert_eq!(broker.status().waiting_offers, 1);
}
