//! REDIRECT and DNAT by the kernel, as sidecars use them: the accepting end has another address than the called one. In a
//! network namespace of its own; needs `nft` (Debian package nftables).

use crate::common::{FakeMember, TestBroker};
use rustix::net::{AddressFamily, SocketType, sockopt};
use sidestep_testkit::rerun;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

const INSIDE: &str = "TEST_INSIDE";

/// Port 80 is redirected to 15001, port 15001 to 15006; 127.9.9.9:80 is a service that is really at 127.0.0.1:8080.
const RULES: &str = "
table inet test {
  chain output {
    type nat hook output priority -100;
    ip daddr 127.9.9.9 tcp dport 80 dnat ip to 127.0.0.1:8080
    tcp dport 80 redirect to :15001
    tcp dport 15001 redirect to :15006
  }
}
";

/// The service is at 127.0.0.1:8081 from now on. No reset arrives.
const MOVED: &str = "
flush chain inet test output
table inet test {
  chain output {
    ip daddr 127.9.9.9 tcp dport 80 dnat ip to 127.0.0.1:8081
  }
  chain filter {
    type filter hook output priority 0;
    tcp flags & rst == rst drop
  }
}
";

fn nft(rules: &str) {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .env("PATH", path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("nft is missing: install the package nftables");
    child.stdin.take().expect("piped").write_all(rules.as_bytes()).expect("write");
    assert!(child.wait().expect("wait").success());
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// The two ends of a connection that is called at one address and accepted at another.
fn call(called: &str, lands: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address(lands)).expect("bind");
    let client = TcpStream::connect(address(called)).expect("connect");
    let (server, _) = listener.accept().expect("accept");
    assert_eq!(server.local_addr().expect("address"), address(lands), "{called} was translated");
    (client, server)
}

fn pairs(a: &FakeMember, b: &FakeMember, ends: &(TcpStream, TcpStream)) {
    a.offer(1, &ends.0);
    a.expect_silence();
    b.offer(2, &ends.1);
    assert_eq!(a.expect_slot(1).slot, b.expect_slot(2).slot);
}

fn inside() {
    rerun::arrive();
    nft(RULES);
    let broker = TestBroker::start();
    let (a, b) = (broker.join(), broker.join());
    let first = call("127.0.0.1:80", "127.0.0.1:15001");
    a.offer(1, &first.0);
    a.expect_silence();
    b.offer(2, &first.1);
    a.expect_link();
    b.expect_link();
    assert_eq!(a.expect_slot(1).slot, b.expect_slot(2).slot);
    // Connection tracking is on. A plain connection is paired, too, and one whose accepting end is offered first.
    pairs(&a, &b, &call("127.0.0.1:9000", "127.0.0.1:9000"));
    let (client, server) = call("127.0.0.1:80", "127.0.0.1:15001");
    b.offer(1, &server);
    b.expect_silence();
    a.offer(2, &client);
    b.offer_again(1, &server);
    assert_eq!(b.expect_slot(1).slot, a.expect_slot(2).slot);
    pairs(&a, &b, &call("127.9.9.9:80", "127.0.0.1:8080"));
    pairs(&a, &b, &call("[::1]:80", "[::1]:15001"));
    // An IPv6 socket that accepts redirected IPv4.
    let listener = TcpListener::bind("[::]:15001").expect("bind");
    let client = TcpStream::connect("127.0.0.1:80").expect("connect");
    let (server, _) = listener.accept().expect("accept");
    pairs(&a, &b, &(client, server));
    drop(listener);
    mistaken_for_each_other(&broker);
    a_service_that_has_moved(&broker);
}

/// A server's offer waits, and the server does not learn that its client is gone. Then the service moves, and a stranger calls
/// it from the port of that client.
fn a_service_that_has_moved(broker: &TestBroker) {
    let (a, b) = (broker.join(), broker.join());
    let (former, server) = call("127.9.9.9:80", "127.0.0.1:8080");
    let port = former.local_addr().expect("address").port();
    a.offer(1, &server);
    a.expect_silence();
    nft(MOVED);
    sockopt::set_socket_linger(&former, Some(std::time::Duration::ZERO)).expect("linger");
    drop(former);
    let listener = TcpListener::bind("127.0.0.1:8081").expect("bind");
    let stranger = call_from(port, address("127.9.9.9:80"));
    let (accepted, _) = listener.accept().expect("accept");
    b.offer(2, &stranger);
    a.offer_again(1, &server);
    a.expect_silence();
    b.expect_silence();
    assert_eq!(broker.status().waiting_offers, 2, "not paired");
    a.offer(3, &accepted);
    a.expect_link();
    b.expect_link();
    assert_eq!(a.expect_slot(3).slot, b.expect_slot(2).slot);
}

/// One port calls 80, which is redirected to 15001, and also 15001 itself, which is redirected to 15006. The first accepting
/// end and the second calling end mirror each other, but are not peers.
fn mistaken_for_each_other(broker: &TestBroker) {
    let (a, b) = (broker.join(), broker.join());
    let listeners = [15001, 15006].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("bind"));
    let to = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let first = call_from(0, to(80));
    let port = first.local_addr().expect("address").port();
    let (first_lands, _) = listeners[0].accept().expect("accept");
    let second = call_from(port, to(15001));
    let (second_lands, _) = listeners[1].accept().expect("accept");
    assert_eq!(second.peer_addr().expect("address"), first_lands.local_addr().expect("address"));
    assert_eq!(second.local_addr().expect("address"), first_lands.peer_addr().expect("address"));

    a.offer(1, &first_lands);
    b.offer(2, &second);
    b.expect_silence();
    assert_eq!(broker.status().waiting_offers, 2, "not paired");
    b.offer(3, &first);
    a.offer_again(1, &first_lands);
    a.expect_link();
    b.expect_link();
    assert_eq!(a.expect_slot(1).slot, b.expect_slot(3).slot);
    a.offer(4, &second_lands);
    assert_eq!(a.expect_slot(4).slot, b.expect_slot(2).slot);
}

/// A connection from this port, which other connections may use too.
fn call_from(port: u16, to: SocketAddr) -> TcpStream {
    let client = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("socket");
    sockopt::set_socket_reuseaddr(&client, true).expect("reuse");
    rustix::net::bind(&client, &SocketAddr::from(([127, 0, 0, 1], port))).expect("bind");
    rustix::net::connect(&client, &to).expect("connect");
    client.into()
}

#[test]
fn translated_connections_pair_by_the_address_that_was_called() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let mut command = rerun::in_network_of_user_namespace(concat!(
        module_path!(),
        "::translated_connections_pair_by_the_address_that_was_called"
    ));
    assert!(command.env(INSIDE, "1").status().expect("unshare (util-linux) is there").success());
}
