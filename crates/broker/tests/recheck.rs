//! The sockets of waiting offers are looked for repeatedly, by threads that their own domains can block. A single test, since
//! it measures the memory of the process. Needs root.

use crate::common::driven::{Driven, connection};
use crate::common::{tcp_pair, unix_socket};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::sockopt;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::wire;
use sidestep_testkit::held::Held;

fn send(member: &OwnedFd, msg: Msg, fd: Option<&OwnedFd>) {
    wire::send(member.as_fd(), &msg, fd.map(AsFd::as_fd)).expect("send");
}

/// Memory of this process, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("since Linux 4.5");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn a_domain_that_keeps_its_receiver_waiting_is_not_asked_again_and_again() {
    let mut driven = Driven::new();
    let (ours, member) = connection();
    driven.connected(ours);
    send(&member, Msg { arg: 4096, ..Msg::new(Kind::Hello) }, None);
    assert_eq!(driven.answer(&member).kind(), Some(Kind::Welcome));
    let (client, server) = tcp_pair("127.0.0.1");
    let cookie = sockopt::socket_cookie(&client).expect("cookie");
    send(
        &member,
        Msg { offer: 1, arg: cookie, ..Msg::new(Kind::Offer) },
        Some(&client.try_clone().expect("dup").into()),
    );
    send(&member, Msg { arg: 7, ..Msg::new(Kind::Settle) }, None);
    assert_eq!(driven.answer(&member).kind(), Some(Kind::Settled));

    // The domain's receiver blocks in a close.
    let set = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let stuck = unix_socket();
    epoll::add(&set, &stuck, EventData::new_u64(0), EventFlags::empty()).expect("add");
    let held = Held::new(&set);
    let (ours, other) = connection();
    send(&other, Msg::new(Kind::Hello), Some(&stuck));
    drop(stuck);
    driven.connected(ours);
    driven.recheck(1000);
    let before = memory();
    driven.recheck(200_000);
    let grown = memory().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB for 200000 looks");

    // The receiver goes on.
    drop(held);
    send(&member, Msg { arg: 8, ..Msg::new(Kind::Settle) }, None);
    assert_eq!(driven.answer(&member).kind(), Some(Kind::Settled));
    drop((client, server));
    driven.recheck(1);
    assert_eq!(driven.answer(&member).kind(), Some(Kind::Refused));
}
