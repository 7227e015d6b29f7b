//! The direction that we write: one step at a time, by its present carrier, without waiting.

use super::due::STALL_US;
use super::peer::{self, Word, broken};
use super::source::Source;
use super::stretch::{around, begin, blocked, count_return, end_stretch, heed_hints, send_ended, send_unread};
use super::{parked, unrung};
use crate::record::{Conn, flag};
use core::sync::atomic::Ordering::*;
use libc::EAGAIN;
use sidestep_abi::Reason;
use sidestep_conn::{Pace, Phase, Space, Write, Writer};
use sidestep_ring::counters;
use sidestep_sys::{Errno, Result, arch, clock, fd as fdsys};

/// Bytes that are copied and published at a time, so that the reader can begin meanwhile.
const CHUNK: usize = 64 * 1024;
/// Interval at which a writer that never waits asks the kernel whether the peer lives.
const ASK_US: u64 = 10_000;

/// Sends as many bytes as possible under one lock, so that no other writer comes in between. Err: why it is not all. `sent`
/// counts the bytes.
#[inline]
pub fn steps(
    c: &Conn,
    end: &mut Writer,
    fd: i32,
    source: &mut impl Source,
    sent: &mut usize,
    flags: i32,
) -> Result<()> {
    loop {
        match step(c, end, fd, source, *sent, flags)? {
            0 => return Ok(()),
            n => *sent += n,
        }
        if *sent >= source.len() {
            return Ok(());
        }
    }
}

/// Sends bytes without waiting; EAGAIN: none can be sent now.
pub fn step(c: &Conn, end: &mut Writer, fd: i32, source: &mut impl Source, from: usize, flags: i32) -> Result<usize> {
    if !c.is_attached() {
        return native_step(c, fd, source, from, flags);
    }
    if c.phase.is(Phase::Broken) {
        return Err(Errno(libc::EPROTO));
    }
    let half = c.tx_half();
    if end.tx.in_ring() {
        watch_peer(c, end, fd)?;
        heed_hints(c, end, fd)?;
    }
    let want = source.len() - from;
    let least = if c.may_wait(flags) && from == 0 && want <= WHOLE.min(half.size / 2) { want } else { 1 };
    loop {
        match end.tx.next(half, want.min(CHUNK)).map_err(|violation| broken(c, fd, violation))? {
            Write::Ring(0) if want == 0 => return Ok(0),
            Write::Ring(space) if space < least => {
                if !found_space(c, end, fd, least)? {
                    return Err(Errno(EAGAIN));
                }
            }
            Write::Ring(space) => return into_ring(c, end, fd, source, from, want.min(space)),
            // The kernel sends nothing without waiting for space, and tells of an error.
            Write::Unread { .. } if want == 0 && !parked::is_parked(c) => return source.send(fd, from, 0, flags),
            Write::Unread { .. } => send_unread(c, end, fd)?,
            Write::Kernel if begin(c, end, fd)? => {}
            // This call has sent bytes, so it leaves the error, and SIGPIPE, to the next call.
            Write::Kernel if from > 0 && fdsys::poll_now(fd, 0) & libc::POLLERR != 0 => return Err(Errno(libc::EPIPE)),
            Write::Kernel if !parked::fetch_back(c) => {
                blocked(c);
                return Err(Errno(EAGAIN));
            }
            Write::Kernel => {
                let flags = if from > 0 { flags | libc::MSG_NOSIGNAL } else { flags };
                let n = source.send(fd, from, end.kernel_piece(), flags).inspect_err(|e| {
                    if e.passes() {
                        end.kernel_is_full();
                        blocked(c);
                    }
                })?;
                end.tx.put_kernel(n);
                counters::set_kernel_tx(&c.words().counters[c.my_side()], end.tx.kernel());
                unrung::space(c);
                return Ok(n);
            }
        }
    }
}

/// The connection became native while a call was blocked on it. The slot may be another connection's by now.
fn native_step(c: &Conn, fd: i32, source: &mut impl Source, from: usize, flags: i32) -> Result<usize> {
    let n = source.send(fd, from, usize::MAX, flags)?;
    c.early_tx.fetch_add(n as u64, Relaxed);
    Ok(n)
}

fn into_ring(c: &Conn, end: &mut Writer, fd: i32, source: &mut impl Source, from: usize, room: usize) -> Result<usize> {
    let half = c.tx_half();
    let n = source.fill(c.tx_data(), end.tx.at(), from, room.min(CHUNK))?;
    if n == 0 {
        return Ok(0);
    }
    end.put_ring(half, n).map_err(|violation| broken(c, fd, violation))?;
    unrung::space(c);
    c.mark_upgraded();
    peer::notify(c);
    if c.has(flag::UNHEARD) {
        // The peer's doorbell could not be rung, so only the socket can wake the reader.
        c.lower(flag::UNHEARD);
        c.keep();
        parked::part(c);
        end_stretch(c, end, fd, Some(Reason::FdLimit))?;
    }
    // The reader may have left, or asked for the kernel, while we wrote: it looked for bytes before it went to sleep there.
    heed_hints(c, end, fd)?;
    counters::set_ring_tx(&c.words().counters[c.my_side()], end.tx.ring);
    Ok(n)
}

/// A call that may wait, with at most so many bytes, sends them as a whole, as the kernel does: short messages of several threads are
/// not torn. A writer that is told of space has twice as much.
const WHOLE: usize = 4096;

/// The ring has less space than `least`. True: there is as much now, or another carrier.
fn found_space(c: &Conn, end: &mut Writer, fd: i32, least: usize) -> Result<bool> {
    let pace = Pace { now: arch::ticks(), read: read_by_peer(c), patience: clock::ticks_of_us(STALL_US) };
    match end.find_space(c.tx_half(), around(c), pace).map_err(|violation| broken(c, fd, violation))? {
        Space::Enough => Ok(true),
        Space::Left(returned) => {
            count_return(c, returned);
            Ok(true)
        }
        Space::Little { room } => {
            blocked(c);
            Ok(room >= least)
        }
        Space::Stalled(returned) => {
            blocked(c);
            count_return(c, returned);
            send_ended(c, end, fd)?;
            Ok(true)
        }
    }
}

/// The reader's position, as the shared word says.
fn read_by_peer(c: &Conn) -> u64 {
    counters::load(&c.words().counters[1 - c.my_side()]).received()
}

/// Whether the kernel must be asked if the reader is gone: it may have ended without a word. Only if there is a sign of that,
/// and now and then. Bytes for a peer that has ended its side go by kernel, which resets the connection if nobody reads them.
#[inline]
fn watch_peer(c: &Conn, end: &mut Writer, fd: i32) -> Result<()> {
    if parked::is_parked(c) {
        return Ok(());
    }
    let sign = c.has(flag::HINT) || peer::has_ended(c);
    if !end.is_to_ask(arch::ticks(), sign, clock::ticks_of_us(ASK_US), || c.was_waited_for(&c.tx_waited)) {
        return Ok(());
    }
    if peer::ask(c, fd) != Word::Nothing {
        end_stretch(c, end, fd, Some(Reason::PeerClosing))?;
    }
    Ok(())
}

/// Whether a writer that found no space may try again. None: the kernel carries, and must be asked.
pub fn offers_space(c: &Conn, end: &mut Writer, fd: i32) -> Option<bool> {
    if end.tx.has_unsent() {
        // While unread bytes wait for the kernel, no space can be promised for new ones.
        return if send_unread(c, end, fd).is_ok() { None } else { Some(false) };
    }
    let next = end.tx.next(c.tx_half(), 1);
    if !end.tx.in_ring() {
        return None;
    }
    // A writer that found no space is told when enough is free. Any other writer may fill the ring to the last byte.
    if !c.has(flag::TX_BLOCKED) && !matches!(next, Ok(Write::Ring(0))) {
        return Some(true);
    }
    match found_space(c, end, fd, 1) {
        Ok(_) if !end.tx.in_ring() => None,
        Ok(_) if end.has_enough_space(c.tx_half()) => {
            c.lower(flag::TX_BLOCKED);
            c.spaces.fetch_add(1, Relaxed);
            Some(true)
        }
        Ok(_) => Some(false),
        Err(_) => Some(true), // the connection is broken, and the next write reports that
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use crate::stream::iov;
    use crate::stream::source::Buffers;
    use crate::stream::stretch::tests::{connected, fill};
    use crate::stream::unrung::tests::{SLOT, attached, silent_link, with_unread_there};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_send_of_nothing_does_not_wait_for_unread_bytes() {
        let at = silent_link(0x7e6b);
        let (c, (mut near, _far)) = (attached(at, SLOT), connected());
        fill(&mut near);
        let (mut peer, fd) = (with_unread_there(c, 100), near.as_raw_fd());
        assert_eq!(peer.leave_ring(c.tx_half()), Ok(()));
        let nothing = iov::one(core::ptr::null(), 0);
        let sent = c.with_tx(|end| {
            assert_eq!(end_stretch(c, end, fd, Some(Reason::SocketOption)), Ok(()));
            assert!(end.tx.has_unsent());
            step(c, end, fd, &mut Buffers(&nothing), 0, 0)
        });
        assert!(matches!(sent, Ok(Ok(0))));
        link::remove(at);
    }
}
