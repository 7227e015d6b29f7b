//! The same addresses in two network namespaces are two different connections.
//!
//! The test runs itself again inside a new network namespace, as a member that offers sockets with the same tuple as the
//! sockets outside. The owner of a network namespace can make any address in it, so another test does the same in one that a
//! user has made.

use crate::common::users::{MALLORY, as_user};
use crate::common::{FakeMember, TestBroker, tcp_pair, wait_for};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketType, sockopt};
use sidestep_abi::Reason;
use sidestep_broker::domain::NetNamespace;
use sidestep_broker::listen::Address;
use sidestep_broker::netns::Namespaces;
use sidestep_testkit::{Namespace, enter_new, rerun};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

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

/// Below the range of automatic ports (ip_local_port_range), and different at each call.
fn free_ports() -> [u16; 2] {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 10_000) as u16 + 100 * CALLS.fetch_add(1, Relaxed);
    let mut free = (first..first + 100).filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    [0, 0].map(|_| free.next().expect("a port that nobody has"))
}

/// The part that runs inside.
fn inside(broker: &Address, ports: [u16; 2]) {
    rerun::arrive();
    let (client, server) = pair(ports);
    let member = FakeMember::join(broker, 4096);
    member.offer(1, &server);
    // The offer outside mirrors this one. The right end is offered here, last.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("told to go on");
    member.offer(2, &client);
    for _ in 0..2 {
        member.expect_link();
    }
    assert_eq!(member.expect_slot(1).slot, member.expect_slot(2).slot);
}

/// A process that ends with the test.
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
    let mut command =
        rerun::in_network_namespace(concat!(module_path!(), "::equal_tuples_in_two_namespaces_never_meet"));
    command.env(BROKER, broker.address.to_string()).env(PORTS, format!("{} {}", ports[0], ports[1]));
    let mut child = Inside(command.stdin(Stdio::piped()).spawn().expect("unshare (util-linux) is there"));
    wait_for("both wait", || {
        assert_eq!(child.0.try_wait().expect("wait"), None, "the process inside failed");
        (broker.status().waiting_offers == 2).then_some(())
    });
    drop(child.0.stdin.take());
    assert!(child.0.wait().expect("wait").success());
    member.expect_silence();
    assert_eq!(broker.status().waiting_offers, 1);
}

const USER_MADE: &str = "TEST_USER_MADE";

/// An attacker adds the victim's addresses to an interface in a namespace of its own, and offers both ends from there.
#[test]
fn addresses_in_a_namespace_that_a_user_made_prove_nothing() {
    if std::env::var(USER_MADE).is_ok() {
        let broker = std::env::var(BROKER).expect("set").parse().expect("address");
        rerun::arrive();
        let member = FakeMember::join(&broker, 4096);
        let ports = std::env::var(PORTS).expect("set");
        let (a, b) = ports.split_once(' ').expect("two ports");
        let (client, server) = pair([a, b].map(|port| port.parse().expect("port")));
        for (number, end) in [(1, &client), (2, &server)] {
            member.offer(number, end);
            member.expect_refused(number, Reason::Namespace);
        }
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let broker =
        TestBroker::at(Address::Path(dir.path().join("broker")), None, |settings| settings.across_namespaces = true);
    let ports = free_ports();
    let (client, server) = pair(ports);
    let member = broker.join();
    member.offer(1, &client);
    member.expect_silence();
    let mut command = rerun::in_network_of_user_namespace(concat!(
        module_path!(),
        "::addresses_in_a_namespace_that_a_user_made_prove_nothing"
    ));
    command
        .env(USER_MADE, "1")
        .env(BROKER, broker.address.to_string())
        .env(PORTS, format!("{} {}", ports[0], ports[1]));
    assert!(command.status().expect("unshare (util-linux) is there").success());
    member.expect_silence();
    let status = broker.status();
    assert_eq!((status.waiting_offers, status.refused.get("namespace")), (1, Some(&2)));
    member.offer(2, &server);
    member.expect_link();
}

/// A broker of an ordinary user may not look into root's namespaces, and does not pair what it cannot prove.
#[test]
fn a_namespace_that_the_broker_cannot_enter_proves_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("chmod");
    // In a directory that the user can read.
    let program = dir.path().join("sidestepd");
    let copied = Command::new("install").args(["-m", "755", env!("CARGO_BIN_EXE_sidestepd")]).arg(&program).status();
    assert!(copied.expect("install (coreutils)").success());
    let address = Address::Path(dir.path().join("broker"));
    let mut command = Command::new(program);
    command.args(["--idle-exit", "0", "--address", &address.to_string()]).uid(MALLORY).gid(MALLORY);
    let _broker = Inside(command.spawn().expect("spawn"));
    wait_for("it listens", || address.connect().ok());
    let ends = || {
        enter_new();
        let (client, server) = tcp_pair("127.0.0.1");
        let member = as_user(MALLORY, || FakeMember::join(&address, 4096));
        for (number, end) in [(1, &client), (2, &server)] {
            as_user(MALLORY, || member.offer(number, end));
            member.expect_refused(number, Reason::Unproven);
        }
    };
    std::thread::scope(|scope| scope.spawn(ends).join()).expect("nothing is proved");
}

/// The peer of a pod's interface ends with the pod's namespace, which nobody may keep.
#[test]
fn a_namespace_ends_with_its_last_member() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let broker = TestBroker::at(Address::Path(dir.path().join("broker")), None, |_| {});
    let _stays = broker.join();
    let (node, pod) = (Namespace::fresh(), Namespace::fresh());
    node.ip(&format!("link add outer type veth peer name inner netns {}", pod.name()));
    let has_peer = || {
        let mut show = Command::new("ip");
        show.args(["link", "show", "dev", "outer"]).stdout(Stdio::null()).stderr(Stdio::null());
        node.run(move || show.status()).expect("ip (iproute2)").success()
    };
    pod.run(|| {
        let (a, b) = (broker.join(), broker.join());
        let (client, server) = tcp_pair("127.0.0.1");
        a.offer(1, &client);
        b.offer(2, &server);
        a.expect_link();
        b.expect_link();
        assert_eq!(a.expect_slot(1).slot, b.expect_slot(2).slot);
    });
    assert!(has_peer());
    drop(pod);
    wait_for("the interface's peer ends", || (!has_peer()).then_some(()));
}

/// All namespaces that users have made are one domain. Each namespace of the system is a domain of its own.
#[test]
fn namespaces_tell_domains_apart_only_if_not_everybody_makes_them() {
    let socket = |_| rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("socket");
    if let Ok(broker) = std::env::var(USER_MADE) {
        let _socket = broker.parse::<Address>().expect("address").connect().expect("connect");
        return;
    }
    let spaces = Namespaces::of_this_process();
    let here = spaces.space_of(socket(()).as_fd());
    let elsewhere = [0, 1].map(|_| {
        let made = std::thread::spawn(move || {
            enter_new();
            socket(())
        });
        spaces.space_of(made.join().expect("a socket").as_fd())
    });
    let all = [here, elsewhere[0], elsewhere[1]];
    assert!(all.iter().all(|space| matches!(space, NetNamespace::Known(_))), "{all:?}");
    assert_eq!(std::collections::BTreeSet::from(all).len(), 3, "{all:?}");
    // A connection belongs to the namespace of the process that made it.
    let dir = tempfile::tempdir().expect("temporary directory");
    let address = Address::Path(dir.path().join("listener"));
    let listener = sidestep_broker::listen::listen(&address, false).expect("listen");
    let mut command = rerun::in_network_of_user_namespace(concat!(
        module_path!(),
        "::namespaces_tell_domains_apart_only_if_not_everybody_makes_them"
    ));
    assert!(command.env(USER_MADE, address.to_string()).status().expect("unshare is there").success());
    let accepted = rustix::net::accept(&listener.socket).expect("accept");
    assert_eq!(spaces.space_of(accepted.as_fd()), NetNamespace::UserMade);
}
