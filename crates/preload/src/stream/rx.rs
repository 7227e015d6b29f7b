//! The direction that we read: one step at a time, by its present carrier, without waiting.

use super::iov::{self, Destination};
use super::peer::{self, broken};
use super::{parked, unrung};
use crate::record::{Conn, flag};
use core::sync::atomic::Ordering::*;
use libc::{EAGAIN, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use sidestep_abi::Reason;
use sidestep_conn::{Advance, Ending, PeerViolation, Phase, Read, Rx};
use sidestep_ring::{counters, space};
use sidestep_sys::{Errno, Result, arch, clock, tcp};

/// Result of one step.
pub enum Step {
    Bytes(usize),
    /// As `Bytes`, but more may follow: the step ended where the carrier changes, or took as much as one step can.
    Part(usize),
    End,
    Empty,
}

/// FIONREAD: how many bytes can be read now, by any carrier.
pub fn readable(c: &Conn, fd: i32) -> usize {
    let reach = |rx: &mut Rx| {
        let half = c.rx_half();
        let next = rx.next(half);
        let queued = u64::from(tcp::queued(fd).unwrap_or(0));
        match next {
            // If the stretch is complete, bytes in the kernel follow those of the ring.
            Ok(Read::Ring(n)) => n as u64 + rx.news_in_kernel(half, queued),
            Ok(Read::Copies) => rx.news_in_kernel(half, queued),
            Ok(Read::Kernel(limit)) if queued < limit => queued,
            Ok(Read::Kernel(limit)) => limit + rx.beyond(half).1 as u64,
            Err(_) => 0,
        }
    };
    let told = c.with_rx(reach).unwrap_or(0) as usize;
    unrung::bytes(c);
    told
}

/// `sleeps`: if there is nothing to read, the caller sleeps.
pub fn step(
    c: &Conn,
    rx: &mut Rx,
    fd: i32,
    to: Destination,
    skip: usize,
    (flags, sleeps): (i32, bool),
) -> Result<Step> {
    if !c.is_attached() {
        return native_step(c, fd, to, skip, flags);
    }
    if c.phase.is(Phase::Broken) {
        return Err(Errno(libc::EPROTO));
    }
    let half = c.rx_half();
    loop {
        match rx.next(half).map_err(|violation| broken(c, fd, violation))? {
            // This call has received bytes, so it leaves the error to the next call.
            Read::Copies | Read::Ring(0) | Read::Kernel(_)
                if skip > 0 && !parked::is_parked(c) && tcp::fails_next(fd) =>
            {
                return Ok(Step::End);
            }
            Read::Copies | Read::Ring(0) => match ask_kernel(c, rx, fd, sleeps)? {
                Asked::Nothing => return Ok(Step::Empty),
                Asked::Ended => return rest(c, rx, fd, to, skip, flags),
                Asked::Shut => return Ok(Step::End),
                Asked::Again => {}
            },
            // A peek wants more than the ring has: if the kernel has copies of everything, it is read there.
            Read::Ring(n) if flags & MSG_PEEK != 0 && n < to.total() - skip && leave_for_copies(c, rx, fd)? => {}
            Read::Ring(n) => {
                if let Some(step) = from_ring(c, rx, fd, to, skip, flags, n)? {
                    return Ok(step);
                }
            }
            // A call does not read past the mark of urgent data, whatever carries the bytes before the mark.
            Read::Kernel(_) if skip > 0 && tcp::is_at_mark(fd) => return Ok(Step::End),
            Read::Kernel(_) if !parked::fetch_back(c) => return Ok(Step::Empty),
            Read::Kernel(limit) => {
                let mut part = iov::empty();
                let part = to.window(skip, limit.min(usize::MAX as u64) as usize, &mut part);
                let taken = part.total();
                let is_end = tells_end(c, fd);
                return match from_kernel(c, rx, fd, (part, to), skip, flags, limit) {
                    Ok(0) if !is_end => Ok(Step::End),
                    Ok(0) => rest(c, rx, fd, to, skip, flags),
                    Ok(n) if flags & MSG_PEEK == 0 && (n as u64 == limit || n == taken) => Ok(Step::Part(n)),
                    Ok(n) => Ok(Step::Bytes(n)),
                    Err(Errno(EAGAIN)) => {
                        c.lower(flag::HINT);
                        Ok(Step::Empty)
                    }
                    Err(e) if keeps(c, rx, e) => continue,
                    Err(e) => Err(failed(c, rx, e)),
                };
            }
        }
    }
}

/// The connection became native while a call was blocked on it. The slot may be another connection's by now.
fn native_step(c: &Conn, fd: i32, to: Destination, skip: usize, flags: i32) -> Result<Step> {
    let mut part = iov::empty();
    match to.window(skip, usize::MAX, &mut part).receive(fd, flags & !MSG_WAITALL) {
        Ok(0) => Ok(Step::End),
        Ok(n) => {
            if flags & MSG_PEEK == 0 {
                c.early_rx.fetch_add(n as u64, Relaxed);
            }
            Ok(Step::Bytes(n))
        }
        Err(Errno(EAGAIN)) => Ok(Step::Empty),
        Err(e) => Err(e),
    }
}

/// Takes up to `available` bytes from the ring. None: the stretch was ended meanwhile.
#[inline]
fn from_ring(
    c: &Conn,
    rx: &mut Rx,
    fd: i32,
    to: Destination,
    skip: usize,
    flags: i32,
    available: usize,
) -> Result<Option<Step>> {
    let half = c.rx_half();
    let n = available.min(to.total() - skip);
    let n = match copy_out(c, rx.at(half), to, skip, n, flags) {
        Ok(()) => n,
        Err(e) => copy_less(c, rx.at(half), to, skip, n, flags, e)?,
    };
    if flags & MSG_PEEK != 0 {
        let more = if n == available { peek_behind(c, rx, fd, to, skip + n, flags) } else { 0 };
        unrung::bytes(c);
        return Ok(Some(Step::Bytes(n + more)));
    }
    c.mark_upgraded();
    match rx.took_ring(half, n).map_err(|violation| broken(c, fd, violation))? {
        Advance::Frozen => Ok(None),
        Advance::Done => {
            counters::set_ring_rx(&c.words().counters[c.my_side()], rx.ring);
            tell_space(c, available - n);
            if n < available {
                unrung::bytes(c);
            }
            if n < available || !rx.is_last_of_ring(half) {
                return Ok(Some(Step::Bytes(n)));
            }
            // After the last byte of a stretch the kernel may have more, behind the copies. An error is left to the next call,
            // since this one has received bytes.
            while matches!(rx.next(half), Ok(Read::Copies)) && discard_copies(c, rx, fd).unwrap_or(false) {}
            Ok(Some(Step::Part(n)))
        }
    }
}

/// A peek that has reached the end of the ring's bytes continues in the kernel, if the kernel has the bytes that follow, and no
/// copies before them.
fn peek_behind(c: &Conn, rx: &mut Rx, fd: i32, to: Destination, skip: usize, flags: i32) -> usize {
    let half = c.rx_half();
    if to.total() == skip || !rx.is_last_of_ring(half) {
        return 0;
    }
    let queued = tcp::queued(fd).map_or(0, u64::from);
    if queued == 0 || rx.news_in_kernel(half, queued) != queued {
        return 0;
    }
    let mut part = iov::empty();
    to.window(skip, queued as usize, &mut part).receive(fd, flags & (MSG_PEEK | MSG_TRUNC)).unwrap_or(0)
}

/// EFAULT: a buffer of the program is bad, and no byte has been consumed.
#[inline]
fn copy_out(c: &Conn, at: u64, to: Destination, skip: usize, n: usize, flags: i32) -> Result<()> {
    if flags & MSG_TRUNC != 0 {
        return Ok(()); // MSG_TRUNC, tcp(7): the bytes are discarded
    }
    to.fill(c.rx_data(), at, skip, n)
}

/// A buffer is bad or ends too early: the bytes before it may still fit, in whole fragments, as in the kernel.
#[cold]
#[inline(never)]
fn copy_less(c: &Conn, at: u64, to: Destination, skip: usize, n: usize, flags: i32, e: Errno) -> Result<usize> {
    if n <= iov::GRAIN { Err(e) } else { copy_out(c, at, to, skip, iov::GRAIN, flags).map(|()| iov::GRAIN) }
}

/// Wakes a writer that waits for space, once half of the ring is free.
#[inline]
fn tell_space(c: &Conn, left: usize) {
    let half = c.rx_half();
    if space::grant(half.writer, left, half.size) {
        peer::notify(c);
    }
}

fn from_kernel(
    c: &Conn,
    rx: &mut Rx,
    fd: i32,
    (part, whole): (Destination, Destination),
    skip: usize,
    flags: i32,
    limit: u64,
) -> Result<usize> {
    let n = part.receive(fd, flags & !MSG_WAITALL)?;
    if flags & MSG_PEEK != 0 {
        return Ok(if n as u64 == limit { n + peek_beyond(c, rx, whole, skip + n, flags) } else { n });
    }
    rx.took_kernel(n);
    counters::set_kernel_rx(&c.words().counters[c.my_side()], rx.kernel);
    Ok(n)
}

/// A peek that has reached the end of the kernel's bytes continues in the ring.
fn peek_beyond(c: &Conn, rx: &Rx, to: Destination, skip: usize, flags: i32) -> usize {
    let (at, there) = rx.beyond(c.rx_half());
    let n = there.min(to.total() - skip);
    if copy_out(c, at, to, skip, n, flags).is_ok() { n } else { 0 }
}

/// Whether a 0 of the kernel is the end of the stream. After shutdown(SHUT_RD) it may say no more than that nothing has arrived.
/// Asked before the read, so that nothing is overlooked that arrives in between.
fn tells_end(c: &Conn, fd: i32) -> bool {
    !c.has(flag::RX_SHUT) || tcp::has_ended(fd)
}

/// The kernel has reported an error, and the program has not been told. What the peer wrote just before comes first.
#[cold]
fn keeps(c: &Conn, rx: &mut Rx, e: Errno) -> bool {
    is_reset(e) && rx.keeps_reset(c.rx_half())
}

/// The error of a read. After a reset the program reads nothing more. Bytes that we sent by kernel may have reached the socket of
/// a killed peer: the program gets ECONNRESET for that reset, not EPIPE.
#[cold]
fn failed(c: &Conn, rx: &mut Rx, e: Errno) -> Errno {
    if !is_reset(e) {
        return e;
    }
    let _ = rx.break_off(c.rx_half());
    if peer::was_killed(c) { Errno(libc::ECONNRESET) } else { e }
}

fn is_reset(e: Errno) -> bool {
    e == Errno(libc::ECONNRESET) || e == Errno(libc::EPIPE)
}

fn leave_for_copies(c: &Conn, rx: &mut Rx, fd: i32) -> Result<bool> {
    let half = c.rx_half();
    if !rx.is_last_of_ring(half) {
        return Ok(false);
    }
    let queued = u64::from(tcp::queued(fd)?);
    rx.leave_for_copies(half, queued).map_err(|violation| broken(c, fd, violation))
}

/// Discards copies in the kernel's queue. True: some were discarded, or it is certain now that none are left.
pub fn discard_copies(c: &Conn, rx: &mut Rx, fd: i32) -> Result<bool> {
    let (half, expected) = (c.rx_half(), rx.expects_copies());
    let mut n = rx.discardable(half, u64::MAX).map_err(|violation| broken(c, fd, violation))?;
    if n > 0 {
        let queued = u64::from(tcp::queued(fd)?);
        n = rx.discardable(half, queued).map_err(|violation| broken(c, fd, violation))?;
    }
    if n == 0 {
        return Ok(expected && !rx.expects_copies());
    }
    rx.discarded(tcp::discard(fd, n)?);
    Ok(true)
}

enum Asked {
    /// The kernel has no news either.
    Nothing,
    /// The stream has ended.
    Ended,
    /// This end has shut its reading side, and nothing is there.
    Shut,
    /// The state has changed; look again.
    Again,
}

/// Whether a caller that does not wait must ask the kernel for an end or an error now.
pub fn is_due(c: &Conn) -> bool {
    let now = arch::ticks();
    if now < c.rx_asked.load(Relaxed) {
        return false;
    }
    c.rx_asked.store(now + clock::ticks_of_us(ASK_US), Relaxed);
    !c.was_waited_for(&c.rx_waited)
}

/// Interval at which a reader that never waits asks the kernel for an end or an error.
const ASK_US: u64 = 1000;

/// The ring has no byte: asks whether the kernel has an end or an error. Only if there is a sign of one, and now and then for
/// programs that never wait. `sleeps`: the caller is about to sleep on the socket, which reports it.
fn ask_kernel(c: &Conn, rx: &mut Rx, fd: i32, sleeps: bool) -> Result<Asked> {
    let before = parked::changes(c);
    if !before.is_multiple_of(2) {
        return Ok(Asked::Nothing);
    }
    let half = c.rx_half();
    let is_quiet = rx.in_ring() && !c.has(flag::HINT) && !half.has_fin();
    if is_quiet && (sleeps || !is_due(c)) {
        return Ok(Asked::Nothing);
    }
    if discard_copies(c, rx, fd)? {
        return Ok(Asked::Again);
    }
    let mut byte = 0u8;
    let probe = iov::one((&raw mut byte).cast(), 1);
    let is_end = tells_end(c, fd);
    // SAFETY: one writable byte.
    match unsafe { tcp::receive(fd, &probe, MSG_PEEK) } {
        _ if parked::changes(c) != before => Ok(Asked::Nothing),
        Ok(0) if !is_end => Ok(Asked::Shut),
        Ok(0) => Ok(Asked::Ended),
        Ok(_) if discard_copies(c, rx, fd)? => Ok(Asked::Again),
        Ok(_) if rx.next(half) == Ok(Read::Ring(0)) => Err(foreign_bytes(c, fd)),
        Ok(_) => Ok(Asked::Again),
        Err(Errno(EAGAIN)) => {
            c.lower(flag::HINT);
            Ok(Asked::Nothing)
        }
        Err(e) if keeps(c, rx, e) => Ok(Asked::Again),
        Err(e) => Err(failed(c, rx, e)),
    }
}

/// The kernel says that the stream has ended. Bytes that the writer left in the ring come first.
fn rest(c: &Conn, rx: &mut Rx, fd: i32, to: Destination, skip: usize, flags: i32) -> Result<Step> {
    let half = c.rx_half();
    let left = rx.rest(half).map_err(|violation| broken(c, fd, violation))?;
    let n = left.min(to.total() - skip);
    if n == 0 {
        // An error is left to the next call if this one has received bytes.
        let is_reset = skip == 0 && rx.is_reset_due(|| died_unread(c));
        return if is_reset { Err(failed(c, rx, Errno(libc::ECONNRESET))) } else { Ok(Step::End) };
    }
    copy_out(c, rx.at(half), to, skip, n, flags)?;
    if flags & MSG_PEEK == 0 {
        rx.took_rest(half, n).map_err(|violation| broken(c, fd, violation))?;
    }
    Ok(Step::Bytes(n))
}

/// The stream has ended without `fin` of the peer's library: the peer was killed. If it had not read all our bytes, the
/// kernel would have reset the connection. So the program gets ECONNRESET once, like any socket error.
fn died_unread(c: &Conn) -> bool {
    let ending = Ending { peer_ended: !peer::was_killed(c), is_shut: c.has(flag::RX_SHUT | flag::TX_SHUT) };
    ending.is_reset(|| c.with_tx(|end| end.has_died_unread(c.tx_half())).unwrap_or(false))
}

/// Bytes came by kernel while the ring carries: somebody writes to the socket past the library.
#[cold]
fn foreign_bytes(c: &Conn, fd: i32) -> Errno {
    c.blame(Reason::CountMismatch);
    broken(c, fd, PeerViolation::KernelBytes)
}
