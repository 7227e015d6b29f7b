//! Socket options that are read and set.
//!
//! Options are left out if their values differ from run to run. Options that LIMITATIONS lists as different while a ring
//! carries are left out, too: packet counters ("Seen from outside"), TCP_CORK ("Order of effects"), SO_TIMESTAMP and TCP_INQ
//! ("Ancillary data"). So are options that make the end of calls depend on timing: buffer sizes, since programs rely on buffers
//! that take everything they send, and SO_LINGER with a time.

use libc::{IPPROTO_TCP, SOL_SOCKET};
use sidestep_posix::rng::Rng;

/// Level, name, length.
pub const ASKED: &[(i32, i32, u32)] = &[
    (SOL_SOCKET, libc::SO_ERROR, 4),
    (SOL_SOCKET, libc::SO_ERROR, 4),
    (SOL_SOCKET, libc::SO_ERROR, 2),
    (SOL_SOCKET, libc::SO_TYPE, 4),
    (SOL_SOCKET, libc::SO_DOMAIN, 8),
    (SOL_SOCKET, libc::SO_PROTOCOL, 4),
    (SOL_SOCKET, libc::SO_ACCEPTCONN, 4),
    (SOL_SOCKET, libc::SO_RCVTIMEO, 16),
    (SOL_SOCKET, libc::SO_SNDTIMEO, 16),
    (SOL_SOCKET, libc::SO_RCVTIMEO, 3),
    (SOL_SOCKET, libc::SO_LINGER, 8),
    (SOL_SOCKET, libc::SO_RCVLOWAT, 4),
    (SOL_SOCKET, libc::SO_KEEPALIVE, 4),
    (SOL_SOCKET, libc::SO_REUSEADDR, 0),
    (SOL_SOCKET, libc::SO_OOBINLINE, 4),
    (IPPROTO_TCP, libc::TCP_NODELAY, 4),
    (IPPROTO_TCP, libc::TCP_INFO, 1),
    (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 4),
    (IPPROTO_TCP, libc::TCP_KEEPIDLE, 4),
    (77, 1, 4),
    (SOL_SOCKET, 7777, 4),
];

pub fn setting(rng: &mut Rng) -> (i32, i32, Vec<u8>) {
    let int = |n: i32| n.to_ne_bytes().to_vec();
    let time = |sec: i64, usec: i64| [sec.to_ne_bytes(), usec.to_ne_bytes()].concat();
    let onoff = rng.below(2) as i32;
    match rng.below(16) {
        0 => (SOL_SOCKET, libc::SO_RCVTIMEO, time(0, 15_000)),
        1 => (SOL_SOCKET, libc::SO_SNDTIMEO, time(0, 15_000)),
        2 => (SOL_SOCKET, libc::SO_RCVTIMEO, time(0, 0)),
        3 => {
            let (sec, usec) = *rng.pick(&[(-1, 0), (0, 1_000_000), (0, -1)]);
            (SOL_SOCKET, libc::SO_RCVTIMEO, time(sec, usec))
        }
        4 | 5 => (SOL_SOCKET, libc::SO_LINGER, [int(onoff), int(0)].concat()),
        6 => (SOL_SOCKET, libc::SO_RCVLOWAT, int(*rng.pick(&[1, 1, 1, 4, 100]))),
        7 | 8 => (SOL_SOCKET, libc::SO_KEEPALIVE, int(onoff)),
        9 => (SOL_SOCKET, libc::SO_OOBINLINE, int(onoff)),
        10 => (SOL_SOCKET, libc::SO_PRIORITY, int(3)),
        11 => (IPPROTO_TCP, libc::TCP_KEEPIDLE, int(60)),
        12 => (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, int(30_000)),
        13 => (IPPROTO_TCP, libc::TCP_QUICKACK, int(1)),
        14 => (SOL_SOCKET, libc::SO_RCVTIMEO, int(1)),
        _ => (SOL_SOCKET, 7777, int(1)),
    }
}
