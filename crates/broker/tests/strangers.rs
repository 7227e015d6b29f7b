//! Other users, other machines, other kinds of descriptors, forged records: all are refused, counted in the status, and without
//! effect on others. Needs root, for users and network interfaces.

use crate::common;

use crate::common::users::{CAROL, MALLORY, as_user};
use crate::common::{DEADLINE, FakeMember, Shared, TestBroker, connect, receive, tcp_pair, wait_for};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SocketType, sockopt};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_abi::{Reason, VERSION};
use sidestep_broker::broker::Settings;
use sidestep_broker::client::{Client, ClientError, Operator};
use sidestep_broker::listen::{Address, listen};
use sidestep_broker::operator;
use sidestep_broker::status::Strangers;
use sidestep_broker::trust::Trust;
use sidestep_broker::wire;
use sidestep_testkit::{Namespace, enter_new, rerun};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;

const BROKER: &str = "TEST_STRANGER_BROKER";
const PORT: &str = "TEST_STRANGER_PORT";
const NOBODY: u32 = 65534;

fn refused(broker: &TestBroker, reason: Reason) -> u64 {
    broker.status().refused.get(reason.name()).copied().unwrap_or(0)
}

/// Runs this test again as another user, from a copy of its program that the user can read.
fn as_nobody(test: &str, broker: &TestBroker, port: u16) {
    assert!(rustix::process::geteuid().is_root(), "this test needs root");
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
    let program = dir.path().join("test");
    std::fs::copy(std::env::current_exe().expect("own path"), &program).expect("copy");
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into(), "--".into()]);
    command.arg(program).args(rerun::alone(test));
    command.env(BROKER, broker.address.to_string()).env(PORT, port.to_string());
    assert!(command.stdout(std::process::Stdio::null()).status().expect("setpriv is there").success());
}

/// Address and port for this process, if it is the other user.
fn stranger() -> Option<(Address, u16)> {
    let broker = std::env::var(BROKER).ok()?.parse().expect("an address");
    Some((broker, std::env::var(PORT).ok()?.parse().expect("a port")))
}

#[test]
fn another_user_gets_no_memory_from_a_broker_of_root() {
    if let Some((broker, port)) = stranger() {
        let member = FakeMember::join(&broker, 4096);
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        member.offer(1, &stream);
        return member.expect_refused(1, Reason::UserPair);
    }
    let broker = TestBroker::start();
    let honest = Shared::new(&broker);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (server, _) = listener.accept().expect("accept");
            let member = broker.join();
            member.offer(2, &server);
            member.expect_refused(2, Reason::UserPair);
        });
        as_nobody(concat!(module_path!(), "::another_user_gets_no_memory_from_a_broker_of_root"), &broker, port);
    });
    assert_eq!(refused(&broker, Reason::UserPair), 2, "each end once");
    assert_eq!(broker.status().strangers, [Strangers { uids: [0, NOBODY], connections: 1 }]);
    assert_eq!(broker.status().connections.len(), 1, "the honest one");
    drop(honest);
}

/// Who joined as root and then gave that up, as a server's worker does, is a stranger as the user that it became.
#[test]
fn strangers_are_the_users_of_the_offers() {
    let broker = TestBroker::start();
    let (worker, client) = (broker.join(), as_user(CAROL, || broker.join()));
    let (accepted, connected) = tcp_pair("127.0.0.1");
    as_user(MALLORY, || worker.offer(1, &accepted));
    wait_for("the offer waits", || (broker.status().waiting_offers == 1).then_some(()));
    as_user(CAROL, || client.offer(2, &connected));
    worker.expect_refused(1, Reason::UserPair);
    client.expect_refused(2, Reason::UserPair);
    assert_eq!(broker.status().strangers, [Strangers { uids: [MALLORY, CAROL], connections: 1 }]);
}

#[test]
fn another_user_does_not_join_a_user_s_broker() {
    if let Some((broker, _)) = stranger() {
        for (kind, no) in [(Kind::Hello, Some(Kind::Reject)), (Kind::Stay, Some(Kind::Unknown)), (Kind::Status, None)] {
            let socket = connect(&broker);
            wire::send(socket.as_fd(), &Msg::new(kind), None).expect("send");
            let answer = receive(&socket).map(|(answer, fd)| (answer.kind(), fd.is_some()));
            assert_eq!(answer, no.map(|no| (Some(no), false)));
        }
        return;
    }
    let only_1000 = |settings: &mut Settings| settings.trust = Trust::of_users(1000, None, &[]);
    let broker = TestBroker::with(None, only_1000);
    as_nobody(concat!(module_path!(), "::another_user_does_not_join_a_user_s_broker"), &broker, 0);
    assert_eq!((refused(&broker, Reason::UserPair), refused(&broker, Reason::BrokenPeer)), (1, 1));
    assert_eq!(broker.status().processes.len(), 0);
}

/// The address that is root's by default is a name that any user can hold. Root may name another user's broker all the same.
#[test]
fn root_asks_no_stranger_at_its_default_address() {
    let ask = || {
        enter_new();
        let (default, named) = (Address::of_this_user(), Address::Abstract("sidestep-test-of-another-user".into()));
        let held = as_user(MALLORY, || [&default, &named].map(|address| listen(address, false).expect("free")));
        let refused = Client::connect(&default);
        assert!(matches!(refused, Err(ClientError::OtherUser(_, MALLORY))), "{refused:?}");
        Client::connect(&named).expect("named by root");
        drop(held);
    };
    std::thread::scope(|scope| scope.spawn(ask).join()).expect("as above");
}

/// A pipe instead of memory: whoever reads it waits for as long as its writer likes.
#[test]
fn a_status_that_is_not_memory_is_not_read() {
    let address = Address::Abstract(format!("sidestep-test-liar-{}", std::process::id()));
    let _members = listen(&address, false).expect("free");
    let operators = operator::listen(&address).expect("a place for the operator's socket");
    let (reader, _writer) = rustix::pipe::pipe().expect("pipe");
    let (answered, answer) = mpsc::channel();
    let operator = Operator::connect(&address).expect("it listens");
    std::thread::spawn(move || answered.send(operator.status()).expect("the test waits"));
    let asked = wait_for("an operator", || rustix::net::accept(&operators.socket).ok());
    assert_eq!(receive(&asked).expect("a question").0.kind(), Some(Kind::Status));
    wire::send(asked.as_fd(), &Msg::new(Kind::Done), Some(reader.as_fd())).expect("send");
    let answer = answer.recv_timeout(DEADLINE).expect("nobody waits for the writer");
    assert!(matches!(answer, Err(ClientError::Silent(_))), "{answer:?}");
}

#[test]
fn what_is_no_connected_tcp_socket_is_counted() {
    let broker = TestBroker::start();
    let member = broker.join();
    let stream = |kind| rustix::net::socket(AddressFamily::INET, kind, None).expect("socket");
    let (reader, _writer) = rustix::pipe::pipe().expect("pipe");
    let memfd = rustix::fs::memfd_create("stranger", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("eventfd");
    let bound = TcpListener::bind("127.0.0.1:0").expect("bind");
    let offered: [(OwnedFd, Reason); 7] = [
        (reader, Reason::Foreign),
        (memfd, Reason::Foreign),
        (eventfd, Reason::Foreign),
        (common::unix_socket(), Reason::Foreign),
        (stream(SocketType::DGRAM), Reason::Foreign),
        (stream(SocketType::STREAM), Reason::Short),
        (bound.into(), Reason::Short),
    ];
    for (n, (fd, reason)) in offered.into_iter().enumerate() {
        let cookie = sockopt::socket_cookie(&fd).unwrap_or(0);
        member.send(Msg { offer: n as u64, arg: cookie, ..Msg::new(Kind::Offer) }, Some(&fd));
        member.expect_refused(n as u64, reason);
    }
    assert_eq!((refused(&broker, Reason::Foreign), refused(&broker, Reason::Short)), (5, 2));
    Shared::new(&broker);
}

#[test]
fn a_replayed_descriptor_is_counted() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    let thief = broker.join();
    thief.offer(1, &shared.streams.0);
    thief.expect_refused(1, Reason::Shared);
    shared.a.offer(7, &shared.streams.0);
    shared.a.expect_refused(7, Reason::Dup);
    assert_eq!((refused(&broker, Reason::Shared), refused(&broker, Reason::Dup)), (1, 1));
    assert_eq!(broker.status().connections.len(), 1);
}

#[test]
fn forged_records_are_counted() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    let (client, _server) = tcp_pair("127.0.0.1");
    let client: OwnedFd = client.into();
    let forged = [
        (Msg { kind: 99, ..Msg::new(Kind::Hello) }, None),
        (Msg { version: VERSION + 1, ..Msg::new(Kind::Withdraw) }, None),
        (Msg { place: 64, ..Msg::new(Kind::Doorbell) }, Some(&client)),
        (Msg::new(Kind::Welcome), None),
    ];
    for (msg, fd) in forged {
        let member = broker.join();
        member.send(msg, fd);
        member.expect_hangup();
    }
    assert_eq!(refused(&broker, Reason::BrokenPeer), 4);
    let socket = connect(&broker.address);
    wire::send(socket.as_fd(), &Msg { version: VERSION + 1, ..Msg::new(Kind::Hello) }, None).expect("send");
    receive(&socket).expect("an answer");
    assert_eq!(refused(&broker, Reason::Version), 1);
    assert_eq!(broker.status().connections.len(), 1);
    drop(shared);
}

/// One connection over a pair of interfaces between two namespaces. A thread in each namespace has one end.
fn across(ends: impl Fn(&str, TcpStream) + Sync) {
    let (accepting, calling) = (Namespace::fresh(), Namespace::fresh());
    calling.ip(&format!("link add outer type veth peer name inner netns {}", accepting.name()));
    for (namespace, interface, address) in [(&accepting, "inner", "10.77.0.2/24"), (&calling, "outer", "10.77.0.1/24")]
    {
        namespace.ip(&format!("address add {address} dev {interface}"));
        namespace.ip(&format!("link set {interface} up"));
    }
    let ends = &ends;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            accepting.run(|| {
                let listener = TcpListener::bind("10.77.0.2:7777").expect("bind");
                ends("accepting", listener.accept().expect("accept").0);
            });
        });
        scope.spawn(|| {
            calling.run(|| {
                let called = wait_for("the other namespace listens", || TcpStream::connect("10.77.0.2:7777").ok());
                ends("calling", called);
            });
        });
    });
}

fn broker_at(dir: &Path, across_namespaces: bool) -> TestBroker {
    let settings = |settings: &mut Settings| settings.across_namespaces = across_namespaces;
    TestBroker::at(Address::Path(dir.join("broker")), None, settings)
}

/// By default two ends in two namespaces count as two machines, although they are one connection.
#[test]
fn two_namespaces_are_two_machines() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let broker = broker_at(dir.path(), false);
    let both = std::sync::Barrier::new(2);
    across(|_, stream| {
        let member = broker.join();
        member.offer(1, &stream);
        member.expect_silence();
        both.wait();
        member.expect_silence();
        let waiting = broker.status().waiting_offers;
        both.wait(); // neither leaves before both have looked
        assert_eq!(waiting, 2);
    });
    assert_eq!(broker.status().connections.len(), 0);
}

/// The same addresses on two other machines do not fit these ends: each pair finds its own other end.
#[test]
fn equal_tuples_over_two_pairs_of_interfaces_never_meet() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let broker = broker_at(dir.path(), false);
    let all = std::sync::Barrier::new(4);
    let wait = |_: &str, stream: TcpStream| {
        let member = broker.join();
        member.offer(1, &stream);
        member.expect_silence(); // asks in this domain; the offers of the other domains arrive at the barrier
        all.wait();
        member.expect_silence();
        let waiting = broker.status().waiting_offers;
        all.wait();
        assert_eq!(waiting, 4, "nobody is paired with the namesake of its peer");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| across(wait));
        scope.spawn(|| across(wait));
    });
}
