//! The direction that we write: one step at a time, by whichever carrier it is on, without waiting.

use super::due::STALL_US;
use super::peer::{self, broken};
use super::source::Source;
use super::stretch::{blocked, end_stretch, heed_hints, is_held, note_end, send_unread};
use crate::record::{Conn, TxEnd, flag};
use crate::{arena, settings};
use core::sync::atomic::Ordering::*;
use libc::EAGAIN;
use sidestep_abi::Reason;
use sidestep_conn::Write;
use sidestep_ring::{counters, space};
use sidestep_sys::{Errno, Result, arch, clock, fd as fdsys, tcp};

/// Copied at a time, so that the reader can begin while we go on.
const CHUNK: usize = 64 * 1024;
/// How often a writer that never waits asks the kernel whether the peer is still there.
const ASK_US: u64 = 10_000;

/// Sends all that goes at once, so that no other writer comes in between. Err: why it is not all. `sent` grows.
#[inline]
pub fn steps(c: &Conn, end: &mut TxEnd, fd: i32, source: &mut impl Source, sent: &mut usize, flags: i32) -> Result<()> {
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

/// Sends what goes at once; EAGAIN: nothing now.
pub fn step(c: &Conn, end: &mut TxEnd, fd: i32, source: &mut impl Source, from: usize, flags: i32) -> Result<usize> {
    if c.has(flag::BROKEN) {
        return Err(Errno(libc::EPROTO));
    }
    if !c.is_attached() {
        // Native again, under a call that is blocked on it: the slot may be somebody else's.
        let n = source.send(fd, from, usize::MAX, flags)?;
        c.early_tx.fetch_add(n as u64, Relaxed);
        return Ok(n);
    }
    let half = c.tx_half();
    if end.tx.in_ring() {
        watch_peer(c, end, fd)?;
        heed_hints(c, end, fd)?;
    }
    loop {
        let want = source.len() - from;
        match end.tx.next(half, want.min(CHUNK)).map_err(|lie| broken(c, fd, lie))? {
            Write::Ring(0) if want == 0 => return Ok(0),
            Write::Ring(0) => {
                if !found_space(c, end, fd)? {
                    return Err(Errno(EAGAIN));
                }
            }
            Write::Ring(space) => return into_ring(c, end, fd, source, from, want.min(space)),
            Write::Unread { .. } => send_unread(c, end, fd)?,
            Write::Kernel if may_begin(c, end, fd) => {
                end.tx.begin(half).map_err(|lie| broken(c, fd, lie))?;
                c.tx_froze.store(end.tx.froze_seen(), Relaxed);
                end.stretch_from = end.tx.pos();
                tcp::push(fd); // nothing follows there that would do it
            }
            // The error is the next call's, and so is its signal, if this one has sent something.
            Write::Kernel if from > 0 && fdsys::poll_now(fd, 0) & libc::POLLERR != 0 => return Err(Errno(libc::EPIPE)),
            Write::Kernel => {
                let flags = if from > 0 { flags | libc::MSG_NOSIGNAL } else { flags };
                let n = source.send(fd, from, kernel_room(), flags).inspect_err(|e| {
                    if e.passes() {
                        end.stall.kernel_is_full(end.tx.pos());
                        blocked(c);
                    }
                })?;
                end.tx.put_kernel(n);
                counters::set_kernel_tx(&c.words().counters[c.my_side()], end.tx.kernel());
                c.lower(flag::TX_BLOCKED);
                return Ok(n);
            }
        }
    }
}

fn into_ring(c: &Conn, end: &mut TxEnd, fd: i32, source: &mut impl Source, from: usize, room: usize) -> Result<usize> {
    let half = c.tx_half();
    let n = source.fill(c.tx_data(), end.tx.at(), from, room.min(CHUNK))?;
    if n == 0 {
        return Ok(0);
    }
    end.tx.put_ring(half, n).map_err(|lie| broken(c, fd, lie))?;
    end.stall.is_over();
    c.lower(flag::TX_BLOCKED);
    c.mark_upgraded();
    peer::notify(c);
    if c.has(flag::UNHEARD) {
        // Nothing but the socket itself can wake the reader.
        c.lower(flag::UNHEARD);
        c.raise(flag::KERNEL_ONLY);
        end_stretch(c, end, fd, Some(Reason::FdLimit))?;
    }
    // The reader may have left, or asked for the kernel, while we wrote: it looked for bytes before it went to sleep there.
    heed_hints(c, end, fd)?;
    counters::set_ring_tx(&c.words().counters[c.my_side()], end.tx.ring);
    flip(c, end, fd)?;
    Ok(n)
}

/// The test aid: back to the kernel after so many bytes.
fn flip(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let every = settings::get().flip;
    if every == 0 || !end.tx.in_ring() || end.tx.pos() - end.stretch_from < every {
        return Ok(());
    }
    end_stretch(c, end, fd, Some(Reason::Flip))
}

/// Bytes that one step sends by kernel: all, but with the test aid so few that the carriers take turns.
fn kernel_room() -> usize {
    match settings::get().flip {
        0 => usize::MAX,
        every => every as usize,
    }
}

/// The ring is full: announces that we wait and looks once more. True: there is space, or another carrier.
fn found_space(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<bool> {
    let half = c.tx_half();
    space::wish(half.writer);
    end.tx.look(half).map_err(|lie| broken(c, fd, lie))?;
    if !end.tx.in_ring() {
        note_end(c, end);
        return Ok(true);
    }
    if space::is_enough(end.tx.unread() as usize, half.size) {
        return Ok(true);
    }
    blocked(c);
    if !end.stall.is_full(arch::ticks(), read_by_peer(c), clock::ticks_of_us(STALL_US)) {
        return Ok(end.tx.unread() < half.size as u64);
    }
    end.stall.spill(end.tx.pos(), end.tx.pos() - end.stretch_from, half.size as u64);
    end_stretch(c, end, fd, Some(Reason::Stalled))?;
    Ok(true)
}

/// How far the reader is, as it says.
fn read_by_peer(c: &Conn) -> u64 {
    counters::load(&c.words().counters[1 - c.my_side()]).received()
}

/// Whether a stretch of ring may begin right here.
fn may_begin(c: &Conn, end: &mut TxEnd, fd: i32) -> bool {
    if c.flags.load(Relaxed) & (flag::KERNEL_ONLY | flag::TX_SHUT) != 0
        || !end.stall.permits(end.tx.pos())
        || !end.tx.may_begin(c.tx_half())
        || is_held(c)
        || c.owner.load(Relaxed) != arena::me().unwrap_or(u32::MAX)
    {
        return false;
    }
    match tcp::written(fd) {
        // What went by ring the kernel has never seen.
        Some(n) if n == end.tx.socket => true,
        Some(_) => {
            c.keep_on_kernel(Reason::CountMismatch);
            false
        }
        None => {
            c.keep_on_kernel(Reason::PeerClosing);
            false
        }
    }
}

/// Our ring leads to a reader that may be gone without having been able to say so: asks the kernel when there
/// is a sign, and now and then. What is sent to a peer that has ended its side goes by kernel, which resets the connection if
/// nobody reads there.
#[inline]
fn watch_peer(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let now = arch::ticks();
    if now < end.asked_kernel && !c.has(flag::HINT) && !peer::has_ended(c) {
        return Ok(());
    }
    end.asked_kernel = now + clock::ticks_of_us(ASK_US);
    if !c.has(flag::HINT) && !peer::has_ended(c) && c.was_waited_for(&c.tx_waited) {
        return Ok(());
    }
    let gone = libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP;
    if fdsys::poll_now(fd, libc::POLLRDHUP) & gone != 0 {
        end_stretch(c, end, fd, Some(Reason::PeerClosing))?;
    }
    Ok(())
}

/// Whether a writer that was refused may try again. None: the kernel carries and must be asked.
pub fn offers_space(c: &Conn, end: &mut TxEnd, fd: i32) -> Option<bool> {
    if end.tx.has_unsent() {
        // While unread bytes wait for the kernel, nothing new may be promised.
        return if send_unread(c, end, fd).is_ok() { None } else { Some(false) };
    }
    let next = end.tx.next(c.tx_half(), 1);
    if !end.tx.in_ring() {
        return None;
    }
    // A writer that was refused is told of space once there is enough; any other may fill the ring to the last byte.
    if !c.has(flag::TX_BLOCKED) && !matches!(next, Ok(Write::Ring(0))) {
        return Some(true);
    }
    match found_space(c, end, fd) {
        Ok(_) if !end.tx.in_ring() => None,
        Ok(_) if space::is_enough(end.tx.unread() as usize, c.tx_half().size) => {
            c.lower(flag::TX_BLOCKED);
            c.spaces.fetch_add(1, Relaxed);
            Some(true)
        }
        Ok(_) => Some(false),
        Err(_) => Some(true), // broken: the write will tell
    }
}
