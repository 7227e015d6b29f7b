//! Members that lie, send garbage, or do not read. The broker goes on, and serves the others.

use crate::common;

use crate::common::{FakeMember, Shared, TestBroker, connect, receive, tcp_pair, unix_socket, wait_for};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred, sockopt};
use sidestep_abi::msg::{Kind, LEN, Msg};
use sidestep_abi::{Reason, VERSION};
use sidestep_broker::broker::hold::Scope;
use sidestep_broker::outbox;
use sidestep_broker::trust::Trust;
use sidestep_broker::wire;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering::SeqCst;

fn raw(socket: &OwnedFd, bytes: &[u8]) {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL).expect("send");
}

fn works(broker: &TestBroker) {
    Shared::new(broker);
}

#[test]
fn another_version_is_told_and_left() {
    let broker = TestBroker::start();
    for (kind, version) in [(Kind::Hello, VERSION + 1), (Kind::Status, VERSION + 1), (Kind::Hello, VERSION - 2)] {
        let socket = connect(&broker.address);
        wire::send(socket.as_fd(), &Msg { version, ..Msg::new(kind) }, None).expect("send");
        let (answer, _) = receive(&socket).expect("an answer");
        assert_eq!((answer.kind(), answer.arg), (Some(Kind::Reject), u64::from(VERSION)));
        assert!(receive(&socket).is_none(), "then the end");
    }
    // Another version may have records of another length.
    let socket = connect(&broker.address);
    let mut longer = Msg { version: VERSION + 1, ..Msg::new(Kind::Hello) }.to_bytes().to_vec();
    longer.extend([0; 100]);
    raw(&socket, &longer);
    assert_eq!(receive(&socket).expect("an answer").0.kind(), Some(Kind::Reject));
    works(&broker);
}

#[test]
fn a_wrong_cookie_proves_nothing() {
    let broker = TestBroker::start();
    let member = broker.join();
    let (client, server) = tcp_pair("127.0.0.1");
    let cookie = sockopt::socket_cookie(&server).expect("cookie");
    member.send(Msg { offer: 1, arg: cookie, ..Msg::new(Kind::Offer) }, Some(&client.into()));
    member.expect_refused(1, Reason::Foreign);
    works(&broker);
}

#[test]
fn only_connected_tcp_sockets_are_taken() {
    let broker = TestBroker::start();
    let member = broker.join();
    let udp = UdpSocket::bind("127.0.0.1:0").expect("bind");
    udp.connect(udp.local_addr().expect("address")).expect("connect");
    member.offer(1, &udp);
    member.expect_refused(1, Reason::Foreign);
    member.offer(2, unix_socket());
    member.expect_refused(2, Reason::Foreign);
    let file = std::fs::File::open("/dev/null").expect("open");
    member.send(Msg { offer: 3, ..Msg::new(Kind::Offer) }, Some(&file.into()));
    member.expect_refused(3, Reason::Foreign);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    member.offer(4, &listener);
    member.expect_refused(4, Reason::Short);
    let (client, server) = tcp_pair("127.0.0.1");
    sockopt::set_socket_linger(&server, Some(std::time::Duration::ZERO)).expect("linger");
    drop(server);
    wait_for("the reset arrives", || client.peer_addr().is_err().then_some(()));
    member.offer(5, &client);
    member.expect_refused(5, Reason::Short);
    works(&broker);
}

/// Each of these violates the protocol; the sender is cut off.
#[test]
fn nonsense_ends_the_membership() {
    let broker = TestBroker::start();
    let (client, server) = tcp_pair("127.0.0.1");
    let (client, server): (OwnedFd, OwnedFd) = (client.into(), server.into());
    let cookie = sockopt::socket_cookie(&client).expect("cookie");
    let nonsense: [(&str, Msg, Option<&OwnedFd>); 9] = [
        ("an unknown kind", Msg { kind: 99, ..Msg::new(Kind::Hello) }, None),
        ("a second hello", Msg::new(Kind::Hello), None),
        ("a broker's record", Msg::new(Kind::Slot), None),
        ("a command", Msg::new(Kind::Detach), None),
        ("another version", Msg { version: 9, ..Msg::new(Kind::Withdraw) }, None),
        ("an offer without a socket", Msg { offer: 1, arg: cookie, ..Msg::new(Kind::Offer) }, None),
        ("a doorbell without a descriptor", Msg::new(Kind::Doorbell), None),
        ("a doorbell that is none", Msg::new(Kind::Doorbell), Some(&server)),
        ("a place that cannot be", Msg { place: 64, ..Msg::new(Kind::Doorbell) }, Some(&client)),
    ];
    for (what, msg, fd) in nonsense {
        let member = broker.join();
        member.send(msg, fd);
        assert!(receive(&member.socket).is_none(), "{what}");
    }
    let member = broker.join();
    member.bell(u32::MAX);
    member.expect_hangup();
    let member = broker.join();
    member.offer(1, &client);
    member.offer(1, &server);
    member.expect_hangup();
    works(&broker);
}

/// Only a connection to the operator's socket may give commands, whatever its uid.
#[test]
fn nobody_commands_on_the_members_socket() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    for kind in [Kind::Status, Kind::Detach, Kind::Attach] {
        for joins in [false, true] {
            let socket = if joins { broker.join().socket } else { connect(&broker.address) };
            wire::send(socket.as_fd(), &Scope::All.to_msg(kind), None).expect("send");
            assert!(receive(&socket).is_none(), "{kind:?}");
        }
    }
    let held = shared.memory_a.slot(shared.slot_a.slot).hold.load(SeqCst);
    assert_eq!((held, shared.a.page().hold.load(SeqCst), broker.status().hold), (0, 0, false));
}

#[test]
fn records_of_any_length_and_content_are_survived() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..500 {
        let socket = connect(&broker.address);
        if round % 2 == 0 {
            wire::send(socket.as_fd(), &Msg::new(Kind::Hello), None).expect("hello");
        }
        for _ in 0..8 {
            let len = if random() % 2 == 0 { LEN } else { 1 + random() as usize % 200 };
            let mut bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
            if len >= 8 {
                // Mostly plausible kinds and the right version, so that the handlers are reached.
                bytes[..4].copy_from_slice(&(random() as u32 % 40).to_le_bytes());
                bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
            }
            if len == LEN && random() % 2 == 0 {
                bytes[8..].iter_mut().for_each(|b| *b %= 3);
                bytes[32..36].copy_from_slice(&shared.slot_a.link.to_le_bytes());
            }
            // The broker may have hung up already.
            let _ = rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL);
        }
    }
    works(&broker);
    let connections = broker.status().connections;
    assert!(connections.iter().any(|c| c.id == format!("{}.{}", shared.slot_a.link, shared.slot_a.slot)));
}

#[test]
fn nobody_releases_what_is_not_theirs() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    let stranger = broker.join();
    stranger.release(shared.slot_a);
    stranger.release(shared.slot_b);
    stranger.expect_silence();
    // The own link, with the other's side, another slot, or no valid side.
    shared.a.release(shared.slot_b);
    shared.a.release(common::Given { slot: 1023, ..shared.slot_a });
    shared.a.release(common::Given { slot: usize::MAX, ..shared.slot_a });
    shared.a.release(common::Given { side: 2, ..shared.slot_a });
    shared.a.release(common::Given { link: 0, ..shared.slot_a });
    shared.a.expect_silence();
    let status = broker.status();
    assert_eq!(status.connections.len(), 1);
    let released = |side: usize| shared.memory_a.slot(shared.slot_a.slot).side[side].released.load(SeqCst);
    assert_eq!((released(0), released(1)), (0, 0));
}

#[test]
fn any_value_in_shared_memory_is_only_shown() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    let _bell = shared.b.bell(1);
    for words in [u64::MAX, 0x5555_5555_5555_5555, 1 << 63] {
        let fill = |memory: &common::Memory| {
            let slots = sidestep_abi::link::SLOTS_AT;
            for at in (0..slots + 16 * 576).step_by(8) {
                memory.map.at::<std::sync::atomic::AtomicU64>(at).store(words, SeqCst);
            }
        };
        fill(&shared.memory_a);
        for at in (0..4096).step_by(8) {
            shared.a.page.at::<std::sync::atomic::AtomicU64>(at).store(words, SeqCst);
        }
        let status = broker.status();
        assert_eq!((status.processes.len(), status.connections.len()), (2, 1));
        broker.operator().hold(Scope::All, true).expect("answered");
        broker.operator().hold(Scope::All, false).expect("answered");
    }
    drop(shared.a);
    wait_for("the death is noticed", || (broker.status().processes.len() == 1).then_some(()));
    works(&broker);
}

#[test]
fn a_member_that_does_not_listen_gets_no_more_matches_and_holds_nobody_up() {
    let broker = TestBroker::start();
    let (deaf, peer) = (broker.join(), broker.join());
    let (client, server) = tcp_pair("127.0.0.1");
    deaf.offer(0, &client);
    deaf.expect_nothing_yet();
    // The member reads none of its refusals. After a while the broker stops reading from it.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let listener = OwnedFd::from(listener);
    let mut sent = 0u64;
    let stuck = (1..).find(|&n| {
        let msg = Msg { offer: n, ..Msg::new(Kind::Offer) };
        match wire::send(deaf.socket.as_fd(), &msg, Some(listener.as_fd())) {
            Ok(()) => {
                sent = n;
                false
            }
            // The socket is full: wait to see whether the broker is only behind.
            Err(_) => (0..100).all(|_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                wire::send(deaf.socket.as_fd(), &msg, Some(listener.as_fd())).is_err()
            }),
        }
    });
    assert!(stuck.is_some_and(|n| n > outbox::FULL as u64), "it was cut off after {sent} records");
    peer.offer(1, &server);
    peer.expect_refused(1, Reason::PeerAbsent);
    works(&broker);
    // When it reads again, no record is missing.
    let mut refused = 0;
    while refused < sent {
        let (msg, _) = deaf.expect(Kind::Refused);
        refused += u64::from(msg.offer != 0);
    }
    works(&broker);
}

/// An offer in the name of another user, which only root may send.
fn offer_as(member: &FakeMember, user: u32, number: u64, socket: &TcpStream) -> rustix::io::Result<usize> {
    let cookie = sockopt::socket_cookie(socket).expect("cookie");
    let bytes = Msg { offer: number, arg: cookie, ..Msg::new(Kind::Offer) }.to_bytes();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let (uid, gid) = (rustix::process::Uid::from_raw(user), rustix::process::getgid());
    let sockets = [socket.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    control.push(SendAncillaryMessage::ScmCredentials(UCred { pid: rustix::process::getpid(), uid, gid }));
    rustix::net::sendmsg(&member.socket, &[std::io::IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
}

#[test]
fn an_offer_counts_for_the_user_who_makes_it() {
    let broker = TestBroker::with(None, |settings| settings.trust = Trust::of_users(0, None, &[vec![1000, 1337]]));
    let (a, b) = (broker.join(), broker.join());
    if !rustix::process::geteuid().is_root() {
        // The kernel prevents a false uid. Without root there is no second user for the rest of the test.
        let lie = offer_as(&a, rustix::process::getuid().as_raw() + 1, 1, &tcp_pair("127.0.0.1").0);
        return assert_eq!(lie, Err(rustix::io::Errno::PERM));
    }
    let (client, server) = tcp_pair("127.0.0.1");
    offer_as(&a, 1000, 1, &client).expect("send");
    offer_as(&b, 1001, 2, &server).expect("send");
    a.expect_refused(1, Reason::UserPair);
    b.expect_refused(2, Reason::UserPair);
    offer_as(&a, 1000, 3, &client).expect("send");
    offer_as(&b, 1337, 4, &server).expect("send");
    a.expect_link();
    a.expect_slot(3);
}

#[test]
fn hundreds_of_silent_connections_do_no_harm() {
    let broker = TestBroker::start();
    let silent: Vec<OwnedFd> = (0..300).map(|_| connect(&broker.address)).collect();
    works(&broker);
    drop(silent);
    works(&broker);
}

#[test]
fn a_socket_with_linger_does_not_hold_the_broker_up() {
    let broker = TestBroker::start();
    let member = broker.join();
    let (client, server) = tcp_pair("127.0.0.1");
    // Unsent data and a long linger: the last close() of this socket blocks.
    sockopt::set_socket_linger(&client, Some(std::time::Duration::from_secs(600))).expect("linger");
    fill(&client);
    member.offer(1, &client);
    // Either this close or the broker's may be the last one.
    let ours = std::thread::spawn(move || drop(client));
    broker.status();
    works(&broker);
    drop(server); // ends the linger, and the threads that wait for it
    ours.join().expect("closed");
}

fn fill(stream: &TcpStream) {
    stream.set_nonblocking(true).expect("non-blocking");
    while std::io::Write::write(&mut &*stream, &[0; 65536]).is_ok() {}
}

impl FakeMember {
    fn expect_nothing_yet(&self) {
        assert!(matches!(wire::receive(self.socket.as_fd()), wire::Incoming::Empty));
    }
}
