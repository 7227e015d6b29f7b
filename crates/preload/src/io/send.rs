//! Sending: every call that writes to a connection comes here.

use super::{arrive, past_us};
use crate::record::{Conn, Reentered};
use crate::stream::native::natively;
use crate::stream::source::Source;
use crate::stream::tx::steps;
use crate::stream::{kept, late, stretch};
use crate::wait::block::Blocking;
use crate::wait::pause::{Number, Pause, Want};
use crate::{arena, drain, errno, offer};
use core::sync::atomic::Ordering::*;
use libc::EAGAIN;
use sidestep_abi::Reason;
use sidestep_conn::{Course, Writer};
use sidestep_sys::{Errno, Result, push};

/// Sends from `source` as sendmsg(2) would. `native`: the program's own call.
#[inline]
pub fn send(index: u32, fd: i32, source: &mut impl Source, flags: i32, native: impl FnOnce() -> isize) -> isize {
    let c = arrive(index);
    if flags & KERNEL_FLAGS != 0 {
        let reason = if flags & libc::MSG_OOB != 0 { Reason::Urgent } else { Reason::KernelFeature };
        let all = source.len();
        return by_kernel(c, fd, reason, flags, native, |sent| sent < all);
    }
    let mut native = Some(native);
    let passed = natively(index, c, || {
        let n = native.take().map_or(-1, |call| call());
        if n > 0 {
            c.early_tx.fetch_add(n as u64, Relaxed);
        }
        n
    });
    match passed {
        Some(n) => {
            if n > 0 {
                offer::count(index, c, fd);
            }
            n
        }
        None => errno::give(attached(index, c, fd, source, flags)),
    }
}

/// Flags that only the kernel can serve.
const KERNEL_FLAGS: i32 = libc::MSG_OOB | libc::MSG_ZEROCOPY | libc::MSG_FASTOPEN;

/// A call that only the kernel can serve: waits until the kernel has all earlier bytes. Our direction stays on the kernel.
/// `has_left`: whether a call that has sent so many bytes has left others, for which the kernel had no room.
#[cold]
pub fn by_kernel(
    c: &'static Conn,
    fd: i32,
    reason: Reason,
    flags: i32,
    native: impl FnOnce() -> isize,
    has_left: impl FnOnce(usize) -> bool,
) -> isize {
    if let Err(e) = errno::keep(|| drain::before_native_send(c, fd, reason, flags)) {
        return errno::give(Err(e));
    }
    let sent = native();
    past_us::sent(c, sent);
    // Epoll sets ask the kernel for space only once a write has found none.
    if c.is_attached() && (sent >= 0 || errno::get() == EAGAIN) && has_left(sent.max(0) as usize) {
        errno::keep(|| stretch::blocked(c));
    }
    sent
}

fn attached(index: u32, c: &'static Conn, fd: i32, source: &mut impl Source, flags: i32) -> Result<usize> {
    let mut sent = 0;
    // The value at the beginning of the call: a later change of O_NONBLOCK affects the next call only.
    let patient = c.may_wait(flags);
    let mut wait = Blocking::new(c.tx_timeout_us.load(Relaxed));
    loop {
        let number = arena::number(index, fd);
        let send = |end: &mut Writer| {
            // What a signal handler wrote while it had interrupted a wait goes first.
            if late::has_some(index) && !kept::all_go(index, c, end, number) {
                return Err(Errno(EAGAIN));
            }
            steps(c, end, number, source, &mut sent, flags)
        };
        let all = match c.with_tx(send) {
            Ok(all) => all,
            Err(Reentered) => return source.keep(index),
        };
        if late::has_some(index) {
            send_late(index, c, fd);
        }
        match all {
            Ok(()) => {
                hasten(c, number, flags);
                return Ok(sent);
            }
            Err(Errno(EAGAIN)) if patient => match wait.until(index, c, fd, Want::Out, sent) {
                Ok(()) => {}
                Err(e) => return if sent > 0 { Ok(sent) } else { Err(e) },
            },
            Err(e) => return if sent > 0 { Ok(sent) } else { Err(e) },
        }
    }
}

/// Nagle's algorithm holds a short message back until the peer has acknowledged the one before. If the peer's answers go by ring, they take
/// no acknowledgement along, and it comes 40 ms late.
#[inline]
fn hasten(c: &Conn, fd: i32, flags: i32) {
    let reads_ring = || c.with_rx(|rx| rx.in_ring()).unwrap_or(false);
    if c.course.is(Course::Kernel) && flags & libc::MSG_MORE == 0 && c.is_attached() && reads_ring() {
        push::push_past_nagle(fd);
    }
}

/// Sends what a signal handler wrote while it had interrupted our write.
#[cold]
fn send_late(index: u32, c: &'static Conn, fd: i32) {
    let mut wait = Pause::new(LATE_US);
    while late::has_some(index) && kept::send(index, c, fd).is_ok() {
        if late::has_some(index) && wait.pause(c, Number::of(fd), Want::Out).is_err() {
            return;
        }
    }
}

/// Longest wait of an interrupted write for room for the signal handler's bytes.
const LATE_US: u64 = 2_000_000;
