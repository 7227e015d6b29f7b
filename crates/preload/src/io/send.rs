//! Sending. All calls that write to a connection come here.

use super::recv::{broken, notify_peer};
use super::{arrive, iov, late, natively};
use crate::record::{Conn, Reentered, TxEnd, flag};
use crate::wait::block::{self, Want};
use crate::{arena, attach, errno, life, member, settings, user};
use core::sync::atomic::Ordering::*;
use libc::{EAGAIN, MSG_DONTWAIT, iovec};
use sidestep_abi::Reason;
use sidestep_conn::Write;
use sidestep_ring::{counters, slot, space};
use sidestep_sys::{Errno, Result, arch, clock, fd as fdsys, tcp};

/// Copied at a time, so that the reader can begin while we go on.
const CHUNK: usize = 64 * 1024;
/// A reader that takes nothing for so long has stalled, unless it was found out before to be slow whatever carries
/// ([`sidestep_conn::Stall`]): the kernel's larger buffers take over.
pub const STALL_US: u64 = 20_000;
/// After so long a look at a writer without space finds out.
pub const STALLED_US: u64 = STALL_US + 1000;
/// How often a writer that never waits asks the kernel whether the peer is still there.
const ASK_US: u64 = 10_000;

/// What a write draws from.
pub trait Source {
    /// Bytes in all, as far as known.
    fn len(&self) -> usize;
    /// Copies up to `max` bytes from position `from` into the ring at `at`. Ok(0): no more.
    fn fill(&mut self, data: sidestep_ring::Data, at: u64, from: usize, max: usize) -> Result<usize>;
    /// Sends up to `max` bytes from position `from` by kernel, without waiting.
    fn send(&mut self, fd: i32, from: usize, max: usize, flags: i32) -> Result<usize>;
    /// Keeps all of it for later (`late`); EAGAIN: it does not fit.
    fn keep(&mut self, index: u32) -> Result<usize>;
}

/// The program's buffers.
pub struct Buffers<'a>(pub &'a [iovec]);

impl Source for Buffers<'_> {
    fn keep(&mut self, index: u32) -> Result<usize> {
        late::keep(index, self.0)
    }

    fn len(&self) -> usize {
        iov::total(self.0)
    }

    #[inline]
    fn fill(&mut self, data: sidestep_ring::Data, at: u64, from: usize, max: usize) -> Result<usize> {
        match put(self.0, data, at, from, max) {
            Ok(()) => Ok(max),
            Err(e) => self.fill_less(data, at, from, max, e),
        }
    }

    fn send(&mut self, fd: i32, from: usize, max: usize, flags: i32) -> Result<usize> {
        let mut part = iov::empty();
        let n = iov::slice(self.0, from, max, &mut part);
        // SAFETY: integers and null pointers: all zero is a value.
        let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
        header.msg_iov = part.as_mut_ptr();
        header.msg_iovlen = n;
        // MSG_CMSG_COMPAT means nothing to send(2), and is refused by sendmsg(2), which has not come here with it.
        let flags = flags & i32::MAX | MSG_DONTWAIT;
        let args = [fd as usize, &raw const header as usize, flags as usize, 0, 0, 0];
        // SAFETY: the program's own buffers. Without MSG_NOSIGNAL the kernel raises SIGPIPE itself.
        unsafe { sidestep_sys::call(libc::SYS_sendmsg, args) }
    }
}

impl Buffers<'_> {
    /// A buffer ends too early: the first fragment may do.
    #[cold]
    #[inline(never)]
    fn fill_less(&self, data: sidestep_ring::Data, at: u64, from: usize, max: usize, e: Errno) -> Result<usize> {
        if max <= iov::GRAIN { Err(e) } else { put(self.0, data, at, from, iov::GRAIN).map(|()| iov::GRAIN) }
    }
}

#[inline]
fn put(iov: &[iovec], data: sidestep_ring::Data, at: u64, from: usize, len: usize) -> Result<()> {
    iov::pieces(iov, from, len, |src, len, done| {
        // SAFETY: a piece of the ring, which nobody reads before it is published.
        data.put(at + done as u64, src, len, |to, from, len| unsafe { user::copy(to, from, len) })
    })
}

/// Sends from `source` as sendmsg(2) would. `native`: the program's own call.
#[inline]
pub fn send(index: u32, fd: i32, source: &mut impl Source, flags: i32, native: impl FnOnce() -> isize) -> isize {
    let c = arrive(index);
    if flags & KERNEL_FLAGS != 0 {
        return by_kernel(c, fd, flags, native);
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
                attach::count(index, c, fd);
            }
            n
        }
        None => errno::give(attached(index, c, fd, source, flags)),
    }
}

/// Flags that only the kernel can serve.
const KERNEL_FLAGS: i32 = libc::MSG_OOB | libc::MSG_ZEROCOPY | libc::MSG_FASTOPEN;

/// For good by kernel, because of a flag.
fn by_kernel(c: &'static Conn, fd: i32, flags: i32, native: impl FnOnce() -> isize) -> isize {
    let urgent = flags & libc::MSG_OOB != 0;
    tx_to_kernel(c, fd, Some(if urgent { Reason::Urgent } else { Reason::KernelFeature }));
    native()
}

fn attached(index: u32, c: &'static Conn, fd: i32, source: &mut impl Source, flags: i32) -> Result<usize> {
    let mut sent = 0;
    // As the call finds it: what becomes of O_NONBLOCK meanwhile is the next call's business.
    let patient = flags & MSG_DONTWAIT == 0 && !c.has(flag::NONBLOCK);
    let mut wait = block::Blocking::new(c.tx_timeout_us.load(Relaxed));
    loop {
        let all = match c.with_tx(|end| steps(c, end, life::number(index, fd), source, &mut sent, flags)) {
            Ok(all) => all,
            Err(Reentered) => return source.keep(index),
        };
        if late::has_some(index) {
            send_late(index, c, fd);
        }
        match all {
            Ok(()) => return Ok(sent),
            Err(Errno(EAGAIN)) if patient => match wait.until(index, c, fd, Want::Out, sent) {
                Ok(()) => {}
                Err(e) => return if sent > 0 { Ok(sent) } else { Err(e) },
            },
            Err(e) => return if sent > 0 { Ok(sent) } else { Err(e) },
        }
    }
}

/// Sends all that goes at once, so that no other writer comes in between. Err: why it is not all. `sent` grows.
#[inline]
fn steps(c: &Conn, end: &mut TxEnd, fd: i32, source: &mut impl Source, sent: &mut usize, flags: i32) -> Result<()> {
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

/// Sends what a signal handler wrote while we were writing.
#[cold]
fn send_late(index: u32, c: &'static Conn, fd: i32) {
    let mut wait = block::Blocking::new(LATE_US);
    while late::has_some(index) {
        late::flush(|bytes| {
            let one = iov::one(bytes.as_ptr().cast(), bytes.len());
            c.with_tx(|end| step(c, end, fd, &mut Buffers(&one), 0, libc::MSG_NOSIGNAL)).map_or(0, |r| r.unwrap_or(0))
        });
        if late::has_some(index) && wait.pause(c, fd, Want::Out).is_err() {
            return;
        }
    }
}

/// So long at most an interrupted write waits for room for what the signal handler wrote.
const LATE_US: u64 = 2_000_000;

/// Sends what goes at once; EAGAIN: nothing now.
fn step(c: &Conn, end: &mut TxEnd, fd: i32, source: &mut impl Source, from: usize, flags: i32) -> Result<usize> {
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
    attach::mark_upgraded(c);
    notify_peer(c);
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

/// Ends our stretch: the ring carries what is in it, the kernel everything else, as far as that goes now. Without a
/// reason: as a part of ending the stream.
fn end_stretch(c: &Conn, end: &mut TxEnd, fd: i32, reason: Option<Reason>) -> Result<()> {
    if end.tx.in_ring() {
        let half = c.tx_half();
        // A peer that has ended both sides, and has said so, reads what is in the ring, and takes nothing by kernel.
        let takes_nothing = peer_has_ended(c) && half.is_unwanted();
        let ended = if takes_nothing { end.tx.end_without_copies(half) } else { end.tx.end(half) };
        ended.map_err(|lie| broken(c, fd, lie))?;
        end.ended_seen = end.tx.ended;
        if let Some(reason) = reason {
            returned(c, end, reason);
        }
    }
    match send_unread(c, end, fd) {
        Err(Errno(EAGAIN)) => Ok(()),
        other => other,
    }
}

/// Counts a return to the kernel, and says when a ring may be tried again.
fn returned(c: &Conn, end: &mut TxEnd, reason: Reason) {
    match settings::get().flip {
        // As soon as who wanted it allows.
        _ if matches!(reason, Reason::Detached | Reason::NeverWaited) => end.stall.resume_after(end.tx.pos(), 0),
        0 => end.stall.hold_back(end.tx.pos()),
        every => end.stall.resume_after(end.tx.pos(), every),
    }
    if reason == Reason::NeverWaited {
        return c.reason.store(reason as u32, Relaxed); // not final: the first wait may be yet to come
    }
    attach::mark_returned(c);
    c.blame(reason);
}

/// Sends by kernel what the reader has not read of an ended stretch. EAGAIN: the kernel takes no more now.
fn send_unread(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    if !end.tx.has_unsent() {
        return Ok(());
    }
    let half = c.tx_half();
    if !half.claim_sending() {
        return wait_for_deputy(c, end, fd);
    }
    let sent = end.tx.heed_deputy(half).map_err(|lie| broken(c, fd, lie));
    let sent = sent.and_then(|()| send_claimed(c, end, fd));
    half.has_sent();
    counters::set_kernel_tx(&c.words().counters[c.my_side()], end.tx.kernel());
    sent
}

/// The reader just sends these bytes to itself (`deputy.rs`), unless it has died meanwhile.
#[cold]
fn wait_for_deputy(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let gone = libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP;
    if fdsys::poll_now(fd, libc::POLLRDHUP) & gone != 0 {
        end.tx.abandon(c.tx_half());
        return Ok(());
    }
    blocked(c);
    Err(Errno(EAGAIN))
}

fn send_claimed(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let (half, data) = (c.tx_half(), c.tx_data());
    loop {
        let Write::Unread { at, len } = end.tx.next(half, 0).map_err(|lie| broken(c, fd, lie))? else { return Ok(()) };
        let says = fdsys::poll_now(fd, libc::POLLRDHUP);
        if says & libc::POLLERR != 0 {
            // Reset: nobody takes these bytes, and to try would use up the error that the program is to hear.
            end.tx.abandon(half);
            return Ok(());
        }
        if says & libc::POLLRDHUP != 0 && !peer_has_ended(c) {
            c.raise(flag::DIED_UNREAD);
        }
        let (from, run) = data.run(at);
        // SAFETY: `run` bytes of the ring.
        match unsafe { tcp::send(fd, &iov::one(from.cast_const().cast(), run.min(len))) } {
            Ok(n) => end.tx.sent_unread(half, n),
            Err(e) if e.passes() => {
                space::wish(half.writer); // a reader that empties the ring ends this, too
                end.tx.look(half).map_err(|lie| broken(c, fd, lie))?;
                if end.tx.has_unsent() {
                    blocked(c);
                    return Err(Errno(EAGAIN));
                }
            }
            // The reader is gone; the next write of the program hears it from the kernel.
            Err(_) => end.tx.abandon(half),
        }
    }
}

/// Nothing more goes now. Whoever waits next looks after it.
fn blocked(c: &Conn) {
    c.put(flag::TX_BLOCKED, true);
    crate::wait::epoll::expect_space();
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
            attach::stay(c, Reason::CountMismatch);
            false
        }
        None => {
            attach::stay(c, Reason::PeerClosing);
            false
        }
    }
}

/// Whether the operator, or one of the two ends, wants the connection on the kernel for the time being.
fn is_held(c: &Conn) -> bool {
    slot::is_held(c.words()) || slot::is_away(c.words()) || member::holds()
}

/// What to call it.
fn holder(c: &Conn) -> Reason {
    if slot::is_away(c.words()) { Reason::NeverWaited } else { Reason::Detached }
}

/// Our ring leads to a reader that may be gone without having been able to say so: asks the kernel when there
/// is a sign, and now and then. What is sent to a peer that has ended its side goes by kernel, which resets the connection if
/// nobody reads there.
#[inline]
fn watch_peer(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let now = arch::ticks();
    if now < end.asked_kernel && !c.has(flag::HINT) && !peer_has_ended(c) {
        return Ok(());
    }
    end.asked_kernel = now + clock::ticks_of_us(ASK_US);
    if !c.has(flag::HINT) && !peer_has_ended(c) && c.was_waited_for(&c.tx_waited) {
        return Ok(());
    }
    let gone = libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP;
    if fdsys::poll_now(fd, libc::POLLRDHUP) & gone != 0 {
        end_stretch(c, end, fd, Some(Reason::PeerClosing))?;
    }
    Ok(())
}

/// Something rang for this connection: looks at what our direction has to do with it. Called by waits that ask the kernel,
/// too.
#[inline]
pub fn serve(index: u32) {
    let c = arena::conn(index);
    c.mark_waited_for();
    if c.is_attached() && (has_hint(c) || c.has(flag::TX_UNSENT)) {
        errno::keep(|| follow(c, arena::local(index).fd.load(Relaxed) as i32));
    }
}

/// The same without having been rung. Every look of every wait does it, whatever it is for: what happened before our
/// doorbell was known nobody could ring for. But a reader that left because its end was closed wants nothing back, and
/// sending it something would use up the error that the program is to hear.
#[inline]
pub fn attend(c: &Conn, fd: i32) {
    if c.has(flag::TX_UNSENT) || has_hint(c) && !peer_has_ended(c) {
        errno::keep(|| follow(c, fd));
    }
}

/// Whether reader or operator have changed something about a ring of ours since we last looked.
#[inline]
fn has_hint(c: &Conn) -> bool {
    c.has(flag::TX_RING) && c.tx_half().hints() != c.tx_froze.load(Relaxed)
}

#[cold]
fn follow(c: &Conn, fd: i32) {
    let _ = c.with_tx(|end| {
        let _ = heed_hints(c, end, fd);
        let _ = send_unread(c, end, fd);
    });
}

/// Looks at what was hinted: the reader has left our ring, wants no ring any more, or the operator does not.
#[inline]
fn heed_hints(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    if end.tx.in_ring() && !end.tx.asked_back(c.tx_half()) {
        return Ok(());
    }
    heed(c, end, fd)
}

#[cold]
fn heed(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let half = c.tx_half();
    end.tx.look(half).map_err(|lie| broken(c, fd, lie))?;
    c.tx_froze.store(end.tx.froze_seen(), Relaxed);
    if end.tx.in_ring() && (half.is_unwanted() || is_held(c)) {
        let reason = if is_held(c) { holder(c) } else { Reason::PeerClosing };
        return end_stretch(c, end, fd, Some(reason));
    }
    note_end(c, end);
    Ok(())
}

/// If our stretch has been ended by its reader: counts that.
fn note_end(c: &Conn, end: &mut TxEnd) {
    if end.tx.ended != end.ended_seen {
        end.ended_seen = end.tx.ended;
        if !peer_has_ended(c) {
            returned(c, end, if is_held(c) { holder(c) } else { Reason::PeerClosing });
        }
    }
}

/// Whether the peer has closed its end, or half of it: what it left is not a return.
fn peer_has_ended(c: &Conn) -> bool {
    c.rx_half().has_fin()
}

/// Our direction to the kernel for good, as far as that goes at once.
pub fn leave_ring(c: &Conn, fd: i32, reason: Reason) {
    c.raise(flag::KERNEL_ONLY);
    let _ = c.with_tx(|end| end_stretch(c, end, fd, Some(reason)));
}

/// Our direction to the kernel for good: what is sent next is sent there. Without a reason: as a part of ending it.
pub fn tx_to_kernel(c: &'static Conn, fd: i32, reason: Option<Reason>) {
    c.raise(flag::KERNEL_ONLY);
    if !c.is_attached() {
        reason.inspect(|r| c.blame(*r));
        return;
    }
    let mut wait = block::Blocking::new(LAST_WAIT_US);
    loop {
        let pending = c.with_tx(|end| end_for_good(c, end, fd, reason));
        if !matches!(pending, Ok(true)) || wait.pause(c, fd, Want::Out).is_err() {
            return;
        }
    }
}

/// How long at most a call that must not go on waits for the kernel to take bytes that nobody else can deliver.
const LAST_WAIT_US: u64 = 2_000_000;

/// Ends our direction's use of rings. True: the reader has left the ring, and the kernel does not take what it has not read.
pub fn end_for_good(c: &Conn, end: &mut TxEnd, fd: i32, reason: Option<Reason>) -> bool {
    let _ = end_stretch(c, end, fd, reason);
    end.tx.stop_copying(c.tx_half()); // the reader has in the ring what the kernel does not take now
    end.tx.has_unsent()
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
