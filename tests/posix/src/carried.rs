//! While a connection is warmed up: until the stack carries it.

use std::time::{Duration, Instant};

use crate::hosts::{self, Side};
use crate::sys::{Fd, bare, fds, net};

/// The stack needs packets of a connection, then a grace period of 10 to 150 ms, and then calls of the program. So a program whose
/// rounds last so long makes some in each step; and enough of them for a slow machine.
const ROUND: Duration = Duration::from_millis(10);

/// What to wait for.
pub struct Awaited(Vec<Fd>);

impl Awaited {
    /// Those of the ends that the stack carries.
    pub fn of(ends: &[Fd]) -> Awaited {
        let is_awaited = |end: Fd| hosts::is_stacks(|| side(end));
        Awaited(ends.iter().copied().filter(|&end| is_awaited(end)).collect())
    }

    /// Ends a round: waits, unless the stack carries all ends. Meanwhile the program looks at each, and so enters its ring: a thread
    /// with both ends of a connection would else wait at one for what the other has written on its way into the ring.
    pub fn rest(&self) {
        let began = Instant::now();
        while began.elapsed() < ROUND {
            let waiting: Vec<Fd> = self.0.iter().copied().filter(|&end| !is_carried(end)).collect();
            if waiting.is_empty() {
                return;
            }
            for end in waiting {
                fds::unread(end);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Whether this is the end of the client or that of the server, by its address. None: a sandbox does not permit the question.
fn side(end: Fd) -> Option<Side> {
    let own = net::own_address(end).ok()?.ip();
    let (v4, v6) = hosts::addresses(Side::Server);
    Some(if [v4.to_ipv6_mapped(), v6].contains(&own) { Side::Server } else { Side::Client })
}

/// Whether the stack carries the connection at present: the kernel's socket is in repair mode.
fn is_carried(end: Fd) -> bool {
    bare::int_option(end, libc::IPPROTO_TCP, libc::TCP_REPAIR) == Some(1)
}
