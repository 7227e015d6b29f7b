//! Receiving: every call that reads from a connection comes here.

use super::arrive;
use crate::record::{self, Conn, flag};
use crate::stream::iov::{self, Destination};
use crate::stream::leave;
use crate::stream::native::natively;
use crate::stream::rx::{Step, step};
use crate::wait::block::Blocking;
use crate::wait::pause::Want;
use crate::{arena, errno, offer};
use core::sync::atomic::Ordering::*;
use libc::{EAGAIN, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, MSG_WAITALL};
use sidestep_abi::Reason;
use sidestep_sys::{Errno, Result, clock, tcp};

/// Receives into `to` as recvmsg(2) would. `native`: the program's own call.
#[inline]
pub fn recv(index: u32, fd: i32, to: Destination, flags: i32, native: impl FnOnce() -> isize) -> isize {
    let c = arrive(index);
    if flags & (MSG_OOB | MSG_ERRQUEUE) != 0 {
        return native(); // urgent data is not part of the stream, and its writer sent it by kernel
    }
    let mut native = Some(native);
    let passed = natively(index, c, || {
        let n = native.take().map_or(-1, |call| call());
        if n > 0 && flags & MSG_PEEK == 0 {
            c.early_rx.fetch_add(n as u64, Relaxed);
        }
        n
    });
    match passed {
        Some(n) => {
            if flags & MSG_PEEK == 0 {
                // A program that never waits in its reads may wait where the library does not see it.
                c.put(flag::IMPATIENT, flags & MSG_DONTWAIT != 0);
            }
            if n > 0 {
                offer::count(index, c, fd);
            }
            n
        }
        None => errno::give(attached(index, c, fd, to, flags)),
    }
}

fn attached(index: u32, c: &'static Conn, fd: i32, to: Destination, flags: i32) -> Result<usize> {
    let want = to.total();
    if want == 0 {
        // recv(2) of 0 bytes waits until something can be read.
        let mut byte = 0u8;
        let one = iov::one((&raw mut byte).cast(), 1);
        // SAFETY: a byte of ours.
        let to = unsafe { Destination::new(&one) };
        return attached(index, c, fd, to, flags | MSG_PEEK).map(|_| 0);
    }
    let whole = flags & MSG_WAITALL != 0 && flags & MSG_PEEK == 0;
    // The value at the beginning of the call: a later change of O_NONBLOCK affects the next call only.
    let patient = c.may_wait(flags);
    let sleeps = patient && c.rx_timeout_us.load(Relaxed) != record::NO_WAIT;
    let peeks_all = sleeps && flags & (MSG_PEEK | MSG_WAITALL) == MSG_PEEK | MSG_WAITALL;
    let (mut got, mut peeks, mut has_ended) = (0, 0, false);
    let mut wait = Blocking::new(c.rx_timeout_us.load(Relaxed));
    loop {
        let step = c.with_rx(|rx| step(c, rx, arena::number(index, fd), to, got, (flags, sleeps)));
        // A signal handler has interrupted a read of the same connection and reads itself: it finds nothing for the moment.
        let step = step.unwrap_or(Err(Errno(EAGAIN)));
        match step {
            // MSG_PEEK consumes nothing, so no wait can be asked for "more than these bytes".
            Ok(Step::Bytes(n)) if peeks_all && n < want && peeks < PEEKS && !has_ended => {
                peeks += 1;
                has_ended = c.has(flag::RX_SHUT) || tcp::has_ended(arena::number(index, fd));
                if !has_ended {
                    clock::nap_us(PEEK_US); // if it has, the next look finds the last bytes
                }
            }
            Ok(Step::Bytes(n)) if flags & MSG_PEEK != 0 => return Ok(n),
            Ok(Step::Bytes(n)) => {
                got += n;
                if got >= want || !whole {
                    return Ok(got);
                }
            }
            Ok(Step::Part(n)) => {
                got += n;
                if got >= want {
                    return Ok(got);
                }
            }
            Ok(Step::Empty) if got > 0 && !whole => return Ok(got),
            Ok(Step::End) => return Ok(got),
            Ok(Step::Empty) if arena::is_inherited(c) && leave::hears_rings(c) => {
                leave::rx_to_kernel(c, Reason::Shared)
            }
            Ok(Step::Empty) if !patient => return some(got, Errno(EAGAIN)),
            Ok(Step::Empty) => match wait.until(index, c, fd, Want::In, got) {
                Ok(()) => {}
                Err(e) => return some(got, e),
            },
            Err(e) => return some(got, e),
        }
    }
}

/// MSG_PEEK with MSG_WAITALL looks at most this often for the rest, and then returns what is there.
const PEEKS: u32 = 2000;
const PEEK_US: u64 = 500;

/// What has been received, or the error if nothing has.
fn some(got: usize, error: Errno) -> Result<usize> {
    if got > 0 { Ok(got) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_reads_never_wait_is_seen_to_wait_only_by_poll() {
        let index = arena::alloc().expect("a record");
        let c = arena::conn(index);
        c.reset(0, arena::bit());
        let read = |flags| {
            let (mut byte, mut calls) = (0_u8, 0);
            let one = iov::one((&raw mut byte).cast(), 1);
            // SAFETY: a byte of ours.
            let to = unsafe { Destination::new(&one) };
            let n = recv(index, -1, to, flags, || {
                calls += 1;
                -1
            });
            assert_eq!((n, calls), (-1, 1));
            offer::is_waited_for(c)
        };
        assert!(read(0));
        assert!(!read(MSG_DONTWAIT), "it may wait by a system call of its own, and a ring would not wake it");
        assert!(!read(MSG_DONTWAIT | MSG_PEEK));
        assert!(read(0));
        assert!(read(MSG_DONTWAIT | MSG_PEEK), "a look whether the peer is still there");
        assert!(!read(MSG_DONTWAIT));
        c.raise(flag::WAITED);
        assert!(offer::is_waited_for(c));
        arena::let_go(index);
    }
}
