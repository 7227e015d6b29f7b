//! Every socket option that the kernel can be asked for, before a take and after a give-back.

use crate::common::*;
use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};
use sidestep_repair::{Queues, give_back, take};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::net::TcpStream;

type Number = (c_int, c_int);

/// Larger than any number of an option.
const NUMBERS: std::ops::Range<c_int> = 1..100;
/// Not to be asked for, or different from one moment to the next.
const SKIPPED: [Number; 11] = [
    (IPPROTO_IP, 14),  // IP_MTU is known while the route is
    (IPPROTO_TCP, 21), // TCP_QUEUE_SEQ
    (SOL_SOCKET, 26),  // SO_GET_FILTER counts its length in instructions
    (SOL_SOCKET, 55),  // SO_MEMINFO
    (SOL_SOCKET, 77),  // SO_PEERPIDFD makes a descriptor
    (IPPROTO_TCP, 11), // TCP_INFO
    (IPPROTO_TCP, 12), // TCP_QUICKACK follows the traffic
    (IPPROTO_TCP, 24), // TCP_TIMESTAMP is a clock
    (IPPROTO_TCP, 26), // TCP_CC_INFO
    (IPPROTO_TCP, 28), // TCP_SAVED_SYN
    (IPPROTO_TCP, 35), // TCP_ZEROCOPY_RECEIVE acts
];
/// What no call can restore.
const LOST: [Number; 1] = [(IPPROTO_IPV6, libc::IPV6_V6ONLY)];

fn all(socket: &TcpStream) -> BTreeMap<Number, Vec<u8>> {
    let levels = [SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6];
    let numbers = levels.into_iter().flat_map(|level| NUMBERS.map(move |number| (level, number)));
    let asked = numbers.filter(|number| !SKIPPED.contains(number));
    asked.filter_map(|(level, number)| Some(((level, number), raw::get(socket, level, number).ok()?))).collect()
}

/// Options that a program may set on a connection, with a value that is not the default.
const SET: [(c_int, c_int, c_int); 33] = [
    (SOL_SOCKET, libc::SO_REUSEADDR, 1),
    (SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (SOL_SOCKET, libc::SO_PRIORITY, 3),
    (SOL_SOCKET, libc::SO_MARK, 77),
    (SOL_SOCKET, libc::SO_RCVBUF, 50_000),
    (SOL_SOCKET, libc::SO_SNDBUF, 60_000),
    (SOL_SOCKET, libc::SO_RCVLOWAT, 3),
    (SOL_SOCKET, 15, 1),       // SO_REUSEPORT
    (SOL_SOCKET, 47, 1 << 30), // SO_MAX_PACING_RATE
    (SOL_SOCKET, 46, 9),       // SO_BUSY_POLL
    (SOL_SOCKET, 5, 1),        // SO_DONTROUTE
    (SOL_SOCKET, 29, 1),       // SO_TIMESTAMP
    (SOL_SOCKET, 74, 0),       // SO_TXREHASH
    (IPPROTO_TCP, libc::TCP_NODELAY, 1),
    (IPPROTO_TCP, libc::TCP_CORK, 1),
    (IPPROTO_TCP, libc::TCP_KEEPIDLE, 111),
    (IPPROTO_TCP, libc::TCP_KEEPINTVL, 22),
    (IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
    (IPPROTO_TCP, libc::TCP_SYNCNT, 4),
    (IPPROTO_TCP, libc::TCP_LINGER2, 5),
    (IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, 40_000),
    (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 99_000),
    (IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, 1),
    (IPPROTO_TCP, 25, 12_345), // TCP_NOTSENT_LOWAT
    (IPPROTO_TCP, 36, 1),      // TCP_INQ
    (IPPROTO_TCP, 44, 5000),   // TCP_RTO_MAX_MS
    (IPPROTO_TCP, 45, 60_000), // TCP_RTO_MIN_US
    (IPPROTO_TCP, 46, 20_000), // TCP_DELACK_MAX_US
    (IPPROTO_IP, libc::IP_TTL, 44),
    (IPPROTO_IP, libc::IP_TOS, 0x48),
    (IPPROTO_IP, libc::IP_RECVTOS, 1),
    (IPPROTO_IP, libc::IP_MTU_DISCOVER, 0),
    (IPPROTO_IP, 24, 1), // IP_BIND_ADDRESS_NO_PORT
];
const SET_V6: [(c_int, c_int, c_int); 4] = [
    (IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 44),
    (IPPROTO_IPV6, libc::IPV6_TCLASS, 0x48),
    (IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
    (IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
];

fn set_all(socket: &TcpStream, family: Family) {
    let v6 = if family == Family::V4 { &[][..] } else { &SET_V6 };
    for (level, number, value) in SET.iter().chain(v6) {
        // Some are younger than the oldest kernel that is supported.
        if raw::get(socket, *level, *number).is_ok() {
            raw::set_int(socket, *level, *number, *value);
        }
    }
    raw::set(socket, IPPROTO_TCP, libc::TCP_CONGESTION, b"reno").expect("TCP_CONGESTION");
    let linger = libc::linger { l_onoff: 1, l_linger: 7 };
    raw::set(
        socket,
        SOL_SOCKET,
        libc::SO_LINGER,
        &[linger.l_onoff.to_ne_bytes(), linger.l_linger.to_ne_bytes()].concat(),
    )
    .expect("SO_LINGER");
    let time: Vec<u8> = [3i64, 0].iter().flat_map(|part| part.to_ne_bytes()).collect();
    raw::set(socket, SOL_SOCKET, libc::SO_RCVTIMEO, &time).expect("SO_RCVTIMEO");
    raw::set(socket, SOL_SOCKET, libc::SO_SNDTIMEO, &time).expect("SO_SNDTIMEO");
}

fn survive(shape: Shape, set: bool, unread: usize) {
    let wire = Wire::shaped(&shape);
    let (near, far) = wire.connect(&shape);
    if set {
        set_all(&near, shape.family);
    }
    near.set_nonblocking(true).expect("O_NONBLOCK");
    let mut to_near = Expected::new(5);
    assert_eq!(to_near.write(&far, unread), unread);
    until("the bytes arrive", || raw::unread(&near) == unread as u64);
    wire.close();
    // The second time finds its port bound.
    for time in ["first", "second"] {
        let before = all(&near);
        let taken = take(&near).expect("take");
        give_back(&near, &taken.state, &Queues::new(&taken.unread, &taken.unacknowledged)).expect("give back");
        let after = all(&near);
        assert!(before.len() > 60, "only {} options were found", before.len());
        for (number, was) in &before {
            let allowed = LOST.contains(number);
            assert!(
                allowed || after.get(number) == Some(was),
                "{time}: {number:?}: {was:?} -> {:?}",
                after.get(number)
            );
        }
        let more: Vec<_> = after.iter().filter(|(number, _)| !before.contains_key(number)).collect();
        assert_eq!(more, []);
    }
    assert!(rustix::fs::fcntl_getfl(&near).expect("flags").contains(rustix::fs::OFlags::NONBLOCK));
    wire.open();
    raw::set_int(&near, IPPROTO_TCP, libc::TCP_CORK, 0);
    raw::set_int(&near, SOL_SOCKET, 5, 0);
    finish(near, far, &mut Expected::new(6), &mut to_near, 10_000);
}

#[test]
fn options_of_ipv4_survive() {
    survive(USUAL, true, 0);
}

#[test]
fn options_of_ipv6_survive() {
    survive(Shape { family: Family::V6, ..USUAL }, true, 1000);
}

#[test]
fn options_of_a_mapped_connection_survive() {
    survive(Shape { family: Family::Mapped, role: Role::Dials, ..USUAL }, true, 1000);
}

#[test]
fn defaults_survive() {
    for family in [Family::V4, Family::V6, Family::Mapped] {
        for role in [Role::Accepts, Role::Dials] {
            survive(Shape { family, role, ..USUAL }, false, 1000);
        }
    }
}
