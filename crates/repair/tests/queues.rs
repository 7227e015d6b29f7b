//! Queues that are empty, hold some bytes, or are full: what is taken, and what is there again after the connection has been given
//! back. The peer's packets are dropped meanwhile.

use crate::common::*;
use sidestep_repair::{Queues, Scales, State, Taken, give_back, take, undo};
use std::net::TcpStream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    Empty,
    Some,
    Full,
}

const FILLS: [Fill; 3] = [Fill::Empty, Fill::Some, Fill::Full];
/// No multiple of a segment or of a page.
const SOME: usize = 5003;

fn fill(direction: &mut Expected, from: &TcpStream, fill: Fill) {
    match fill {
        Fill::Empty => {}
        Fill::Some => assert_eq!(direction.write(from, SOME), SOME),
        Fill::Full => direction.write_until_full(from),
    }
}

fn check(taken: &Taken, to_near: &Expected, to_far: &Expected, near: &TcpStream) {
    let State { snd_una, snd_nxt, local, remote, window, rcv_nxt, .. } = taken.state;
    assert_eq!((local, remote), (near.local_addr().expect("local"), near.peer_addr().expect("remote")));
    assert!(taken.unread == to_near.bytes(0, taken.unread.len()), "wrong unread bytes");
    assert_eq!(taken.profile.option_memory, 0);
    let len = taken.unacknowledged.len();
    assert!(taken.unacknowledged == to_far.bytes(to_far.written - len as u64, len), "wrong unacknowledged bytes");
    assert!(snd_nxt.wrapping_sub(snd_una) as usize <= len, "more in flight than queued");
    assert!(window.max_window >= window.snd_wnd);
    assert!(rcv_nxt.wrapping_sub(window.rcv_wup) <= window.rcv_wnd, "the peer has filled more than its window");
}

/// A second take finds what the first has found, and is undone.
fn same_again(taken: &Taken, near: &TcpStream) {
    let again = take(near).expect("take again");
    undo(near, &again.state.saved).expect("undo");
    assert!(again.unread == taken.unread && again.unacknowledged == taken.unacknowledged, "other bytes");
    let (was, is) = (&taken.state, &again.state);
    assert_eq!((is.snd_una, is.rcv_nxt, is.mss, is.sack), (was.snd_una, was.rcv_nxt, was.mss, was.sack));
    assert_eq!(is.scales, was.scales.or(Some(Scales { send: 0, receive: 0 })));
    assert_eq!((is.window.snd_wnd, is.window.max_window), (was.window.snd_wnd, was.window.max_window));
    assert!(is.snd_nxt.wrapping_sub(is.snd_una) <= was.window.snd_wnd, "more was sent than the peer accepts");
    assert!(was.snd_nxt.wrapping_sub(is.snd_nxt) as i32 <= 0, "bytes that were sent count as unsent");
    assert_eq!(is.saved, was.saved);
    assert_eq!((again.path.mss, again.path.mtu), (taken.path.mss, taken.path.mtu));
    let edge = |state: &State| state.window.rcv_wup.wrapping_add(state.window.rcv_wnd);
    assert!(edge(is).wrapping_sub(edge(was)) < 1 << 31, "the window that was promised has shrunk");
    assert_eq!(is.timestamps.is_some(), was.timestamps.is_some());
    if let (Some(is), Some(was)) = (is.timestamps, was.timestamps) {
        // Later by 1 ms of each rounding, and by the time between two calls.
        assert!(is.offset.wrapping_sub(was.offset) < 1000, "{} -> {}", was.offset, is.offset);
    }
}

fn each_filling(shape: Shape) {
    let wire = Wire::shaped(&shape);
    for (unread, unacknowledged) in FILLS.into_iter().flat_map(|a| FILLS.map(|b| (a, b))) {
        println!("{shape:?}: {unread:?} unread, {unacknowledged:?} unacknowledged");
        let (near, far) = wire.connect(&shape);
        near.set_nonblocking(true).expect("O_NONBLOCK");
        far.set_nonblocking(true).expect("O_NONBLOCK");
        let (mut to_near, mut to_far) = (Expected::new(1), Expected::new(2));
        fill(&mut to_near, &far, unread);
        settled(|| raw::unread(&near));
        wire.close();
        fill(&mut to_far, &near, unacknowledged);
        let (was_unread, was_unacknowledged) = (raw::unread(&near), raw::unacknowledged(&near));
        let taken = take(&near).expect("take");
        assert_eq!(taken.unread.len() as u64, was_unread);
        assert_eq!(taken.unacknowledged.len() as u64, was_unacknowledged);
        assert_eq!(taken.unread.is_empty(), unread == Fill::Empty);
        assert_eq!(taken.unacknowledged.is_empty(), unacknowledged == Fill::Empty);
        check(&taken, &to_near, &to_far, &near);
        give_back(&near, &taken.state, &Queues::new(&taken.unread, &taken.unacknowledged)).expect("give back");
        assert_eq!((raw::unread(&near), raw::unacknowledged(&near)), (was_unread, was_unacknowledged));
        no_error(&near);
        same_again(&taken, &near);
        wire.open();
        finish(near, far, &mut to_far, &mut to_near, 100_000);
    }
}

#[test]
fn ipv4() {
    each_filling(USUAL);
}

#[test]
fn ipv4_dialled() {
    each_filling(Shape { role: Role::Dials, ..USUAL });
}

#[test]
fn ipv6() {
    each_filling(Shape { family: Family::V6, ..USUAL });
}

#[test]
fn mapped() {
    each_filling(Shape { family: Family::Mapped, ..USUAL });
}

#[test]
fn mapped_dialled_with_large_segments() {
    each_filling(Shape { family: Family::Mapped, role: Role::Dials, mtu: 9000, ..USUAL });
}

#[test]
fn without_timestamps() {
    each_filling(Shape { timestamps: false, ..USUAL });
}

#[test]
fn without_scaling() {
    each_filling(Shape { scaling: false, ..USUAL });
}

#[test]
fn without_sack() {
    each_filling(Shape { sack: false, ..USUAL });
}

#[test]
fn without_any_option() {
    let shape = Shape { family: Family::V6, role: Role::Dials, ..USUAL };
    each_filling(Shape { timestamps: false, scaling: false, sack: false, ..shape });
}

#[test]
fn large_segments() {
    each_filling(Shape { mtu: 9000, family: Family::V6, ..USUAL });
}
