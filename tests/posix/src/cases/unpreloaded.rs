//! The other end has no library: it must see an ordinary TCP connection, without a single further byte.

use crate::case::{Case, case};
use crate::link;
use crate::peer::Preload;
use crate::sys::cpu::eventually;
use crate::sys::epoll::{ET, Epoll, IN};
use crate::sys::net::Family::{self, V4, V6};
use crate::sys::{fds, net};
use crate::traffic::both_ways;

const WHY: &str = "the peer is not preloaded";

pub const CASES: &[Case] = &[
    case("unpreloaded.server_v4", || exact(link::cold_client(V4, Preload::Stripped))).never(WHY),
    case("unpreloaded.server_v6", || exact(link::cold_client(V6, Preload::Stripped))).never(WHY),
    case("unpreloaded.client_v4", || exact(link::cold_server(V4, Preload::Stripped))).never(WHY),
    case("unpreloaded.client_v6", || exact(link::cold_server(V6, Preload::Stripped))).never(WHY),
    case("unpreloaded.silence_stays_silence", || silence(V4)).never(WHY),
    case("unpreloaded.streams_both_ways", streams).never(WHY),
    case("unpreloaded.event_loop", event_loop).never(WHY),
    case("unpreloaded.many_short_connections", many_short).never(WHY),
    case("unpreloaded.beside_a_preloaded_one", beside),
];

/// The peer counts: the bytes that were sent, none besides, and then the end.
fn exact((mut end, mut peer): (crate::end::End, crate::peer::Peer)) {
    link::warm_up(&mut end, &mut peer);
    for n in [1, 10, 1000, 70_000] {
        peer.start("recv", &[n as u64]);
        end.send(n);
        peer.finish();
        assert_eq!(peer.call("unread", &[]), 0, "bytes that nobody sent");
    }
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    assert_eq!(peer.drain(), 0);
    peer.send(100);
    end.recv(100);
    peer.close();
    end.rx.expect_eof();
}

/// No byte is sent before the first byte, or after it, that the program has not written.
fn silence(family: Family) {
    let (mut end, mut peer) = link::cold_client(family, Preload::Stripped);
    crate::sys::cpu::sleep_ms(50);
    assert_eq!(peer.call("unread", &[]), 0);
    for n in 1..20 {
        end.send(1);
        eventually("the byte is there", || peer.call("unread", &[]) == n);
    }
    crate::sys::cpu::sleep_ms(50);
    assert_eq!(peer.call("unread", &[]), 19);
    peer.recv(19);
}

fn streams() {
    let (mut end, mut peer) = link::cold_client(V4, Preload::Stripped);
    let n = 4 << 20;
    peer.start("mixed", &[n, n, 30_000, 1]);
    both_ways(&mut end, n, n, 30_000, 2);
    peer.finish();
}

fn event_loop() {
    let (mut end, mut peer) = link::cold_client(V4, Preload::Stripped);
    fds::set_nonblocking(end.fd(), true);
    let set = Epoll::new();
    set.add(end.fd(), IN | ET);
    peer.start("mixed", &[2 << 20, 0, 30_000, 1]);
    let goal = end.rx.at + (2 << 20);
    while end.rx.at < goal {
        assert_eq!(set.mask_of(end.fd(), 5000), IN);
        end.rx.drain_now(20_000);
    }
    peer.finish();
}

fn many_short() {
    for _ in 0..8 {
        let (mut end, mut peer) = link::cold_client(V4, Preload::Stripped);
        end.send(500);
        peer.recv(500);
        peer.send(900);
        end.recv(900);
        end.close();
        assert_eq!(peer.call("ending", &[]), 0);
    }
}

/// Two connections of one process: only the one with a preloaded peer may use rings.
fn beside() {
    let (mut plain, mut plain_peer) = link::cold_client(V4, Preload::Stripped);
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..20 {
        plain_peer.start("echo", &[1, 300]);
        peer.start("echo", &[1, 200]);
        plain.send(300);
        end.send(200);
        plain.recv(300);
        end.recv(200);
        plain_peer.finish();
        peer.finish();
    }
    net::shutdown(plain.fd(), libc::SHUT_WR).expect("shutdown");
    assert_eq!(plain_peer.drain(), 0);
}
