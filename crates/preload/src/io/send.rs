//! Sending. All calls that write to a connection come here.

use super::recv::{broken, notify_peer};
use super::{arrive, iov, late, natively};
use crate::record::{Conn, Reentered, TxEnd, flag};
use crate::wait::block::{self, Want};
use crate::{arena, attach, errno, life, member, settings};
use core::sync::atomic::Ordering::*;
use libc::{EAGAIN, MSG_DONTWAIT, iovec};
use sidestep_abi::Reason;
use sidestep_conn::Write;
use sidestep_ring::space;
use sidestep_sys::{Errno, Result, arch, clock, fd as fdsys, tcp};

/// Copied at a time, so that the reader can begin while we go on.
const CHUNK: usize = 64 * 1024;
/// A reader that takes nothing for so long has stalled: the kernel's larger buffers take over.
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
    /// Keeps all of it for later (`late`); None: it does not fit.
    fn keep(&mut self, index: u32) -> Option<usize>;
}

/// The program's buffers.
pub struct Buffers<'a>(pub &'a [iovec]);

impl Source for Buffers<'_> {
    fn keep(&mut self, index: u32) -> Option<usize> {
        late::keep(index, self.0)
    }

    fn len(&self) -> usize {
        iov::total(self.0)
    }

    #[inline]
    fn fill(&mut self, data: sidestep_ring::Data, at: u64, from: usize, max: usize) -> Result<usize> {
        // SAFETY: the program vouches for its buffers; `max` is at most the ring's free space.
        iov::pieces(self.0, from, max, |src, len, done| unsafe { data.put(at + done as u64, src, len) });
        Ok(max)
    }

    fn send(&mut self, fd: i32, from: usize, max: usize, flags: i32) -> Result<usize> {
        let mut part = iov::empty();
        let n = iov::slice(self.0, from, max, &mut part);
        // SAFETY: integers and null pointers: all zero is a value.
        let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
        header.msg_iov = part.as_mut_ptr();
        header.msg_iovlen = n;
        let args = [fd as usize, &raw const header as usize, (flags | MSG_DONTWAIT) as usize, 0, 0, 0];
        // SAFETY: the program's own buffers. Without MSG_NOSIGNAL the kernel raises SIGPIPE itself.
        unsafe { sidestep_sys::call(libc::SYS_sendmsg, args) }
    }
}

/// Sends from `source` as sendmsg(2) would. `native`: the program's own call.
#[inline]
pub fn send(index: u32, fd: i32, source: &mut impl Source, flags: i32, native: impl FnOnce() -> isize) -> isize {
    let c = arrive(index);
    if flags & KERNEL_FLAGS != 0 {
        return by_kernel(c, fd, flags, native);
    }
    let mut native = Some(native);
    let passed = natively(c, || {
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
    let mut wait = block::Blocking::new(c.tx_timeout_us.load(Relaxed));
    loop {
        let step = match c.with_tx(|end| step(c, end, life::number(index, fd), source, sent, flags)) {
            Ok(step) => step,
            Err(Reentered) => return source.keep(index).ok_or(Errno(EAGAIN)),
        };
        if late::has_some(index) {
            send_late(index, c, fd);
        }
        let patient = flags & MSG_DONTWAIT == 0 && !c.has(flag::NONBLOCK);
        match step {
            Ok(0) => return Ok(sent),
            Ok(n) => {
                sent += n;
                if sent >= source.len() {
                    return Ok(sent);
                }
            }
            Err(Errno(EAGAIN)) if patient => match wait.until(index, c, fd, Want::Out, sent) {
                Ok(()) => {}
                Err(e) => return if sent > 0 { Ok(sent) } else { Err(e) },
            },
            Err(e) => return if sent > 0 { Ok(sent) } else { Err(e) },
        }
    }
}

/// Sends what a signal handler wrote while we were writing.
#[cold]
fn send_late(index: u32, c: &'static Conn, fd: i32) {
    let mut wait = block::Blocking::new(LAST_WAIT_US);
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
    }
    loop {
        let want = source.len() - from;
        match end.tx.next(half, want.min(CHUNK)).map_err(|lie| broken(c, fd, lie))? {
            Write::Ring(0) => {
                if !found_space(c, end, fd)? {
                    return Err(Errno(EAGAIN));
                }
            }
            Write::Ring(space) => return into_ring(c, end, fd, source, from, want.min(space)),
            Write::TakeBack { .. } => take_back(c, end, fd)?,
            Write::Kernel if may_begin(c, end, fd) => {
                end.tx.begin(half).map_err(|lie| broken(c, fd, lie))?;
                c.tx_froze.store(end.tx.froze_seen(), Relaxed);
                end.stretch_from = end.tx.pos();
            }
            Write::Kernel => {
                let n = source.send(fd, from, kernel_room(), flags).inspect_err(|_| blocked(c))?;
                end.tx.put_kernel(n);
                c.words().counters[c.my_side()].kernel_tx.store(end.tx.kernel, Relaxed);
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
    end.full_since = 0;
    c.lower(flag::TX_BLOCKED);
    attach::mark_upgraded(c);
    notify_peer(c);
    if c.has(flag::UNHEARD) {
        // Nothing but the socket itself can wake the reader.
        c.lower(flag::UNHEARD);
        c.raise(flag::KERNEL_ONLY);
        give_back(c, end, fd, Reason::FdLimit)?;
    }
    if end.tx.takes_back() && !peer_has_ended(c) {
        returned(c, end, fd)?; // the reader left while we wrote
    }
    c.words().counters[c.my_side()].ring_tx.store(end.tx.ring, Relaxed);
    flip(c, end, fd)?;
    Ok(n)
}

/// The test aid: back to the kernel after so many bytes.
fn flip(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let every = settings::get().flip;
    if every == 0 || !end.tx.in_ring() || end.tx.pos() - end.stretch_from < every {
        return Ok(());
    }
    give_back(c, end, fd, Reason::Flip)
}

/// Bytes that one step sends by kernel: all, but with the test aid so few that the carriers take turns.
fn kernel_room() -> usize {
    match settings::get().flip {
        0 => usize::MAX,
        every => every as usize,
    }
}

/// Ends our stretch and sends by kernel what the reader had not taken, as far as that goes now.
pub fn give_back(c: &Conn, end: &mut TxEnd, fd: i32, reason: Reason) -> Result<()> {
    if !end.tx.in_ring() {
        return take_back(c, end, fd);
    }
    end.tx.give_back(c.tx_half()).map_err(|lie| broken(c, fd, lie))?;
    c.blame(reason);
    pump(c, end, fd)
}

/// Follows a stretch that has ended: takes back what was not read. What does not fit now goes later.
pub fn pump(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    attach::mark_returned(c);
    let wait = if settings::get().flip > 0 { settings::get().flip } else { end.backoff };
    end.rebegin_at = end.tx.pos() + wait;
    match take_back(c, end, fd) {
        Err(Errno(EAGAIN)) => Ok(()),
        other => other,
    }
}

/// Sends the bytes to be taken back. EAGAIN: the kernel takes no more now.
fn take_back(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let data = c.tx_data();
    loop {
        let Write::TakeBack { at, len } = end.tx.next(c.tx_half(), 0).map_err(|lie| broken(c, fd, lie))? else {
            c.words().counters[c.my_side()].kernel_tx.store(end.tx.kernel, Relaxed);
            return Ok(());
        };
        if !peer_has_ended(c) && fdsys::poll_now(fd, libc::POLLRDHUP) & libc::POLLRDHUP != 0 {
            c.raise(flag::DIED_UNREAD);
        }
        let (from, run) = data.run(at);
        // SAFETY: `run` bytes of the ring.
        match unsafe { tcp::send(fd, &iov::one(from.cast_const().cast(), run.min(len))) } {
            Ok(n) => end.tx.took_back(n),
            Err(e) if e.passes() => {
                blocked(c);
                return Err(Errno(EAGAIN));
            }
            // The reader is gone; the next write of the program hears it from the kernel.
            Err(_) => end.tx.abandon(),
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
        if !peer_has_ended(c) {
            returned(c, end, fd)?;
        }
        return Ok(true);
    }
    if space::is_enough(end.tx.unread() as usize, half.size) {
        return Ok(true);
    }
    blocked(c);
    let now = arch::ticks();
    if end.full_since == 0 {
        end.full_since = now;
    }
    if now - end.full_since < clock::ticks_of_us(STALL_US) {
        return Ok(end.tx.unread() < half.size as u64);
    }
    // Each stall makes the next attempt dearer: a reader that is slow by nature is better off on the kernel.
    end.full_since = 0;
    end.backoff = (end.backoff * 4).min(1 << 30);
    give_back(c, end, fd, Reason::Stalled)?;
    Ok(true)
}

/// Whether a stretch of ring may begin right here.
fn may_begin(c: &Conn, end: &mut TxEnd, fd: i32) -> bool {
    if c.flags.load(Relaxed) & (flag::KERNEL_ONLY | flag::TX_SHUT) != 0
        || end.tx.pos() < end.rebegin_at
        || !end.tx.may_begin(c.tx_half())
        || c.words().hold.load(Relaxed) != 0
        || member::holds()
        || c.owner.load(Relaxed) != arena::me().unwrap_or(u32::MAX)
    {
        return false;
    }
    match tcp::written(fd) {
        // What went by ring the kernel has never seen.
        Some(n) if n == end.tx.kernel => true,
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

/// Our ring leads to a reader that may be gone without having been able to say so: asks the kernel when there
/// is a sign, and now and then.
#[inline]
fn watch_peer(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let now = arch::ticks();
    if now < end.asked_kernel && !c.has(flag::HINT) {
        return Ok(());
    }
    end.asked_kernel = now + clock::ticks_of_us(ASK_US);
    let gone = libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP;
    if fdsys::poll_now(fd, libc::POLLRDHUP) & gone != 0 {
        give_back(c, end, fd, Reason::PeerClosing)?;
    }
    Ok(())
}

/// Something rang for this connection: if the reader left our ring, or bytes wait to be taken back, sees to it.
#[inline]
pub fn serve(index: u32) {
    let c = arena::conn(index);
    if c.is_attached() && (asks_back(c) || c.has(flag::TX_TAKE_BACK)) {
        errno::keep(|| follow(c, arena::local(index).fd.load(Relaxed) as i32));
    }
}

/// The same without having been rung. Every look of every wait does it, whatever it is for: what happened before our
/// doorbell was known nobody could ring for. But a reader that left because its end was closed wants nothing back, and
/// sending it something would use up the error that the program is to hear.
#[inline]
pub fn attend(c: &Conn, fd: i32) {
    if c.has(flag::TX_TAKE_BACK) || asks_back(c) && !peer_has_ended(c) {
        errno::keep(|| follow(c, fd));
    }
}

/// Whether the reader has left a ring of ours since we last looked.
#[inline]
fn asks_back(c: &Conn) -> bool {
    c.has(flag::TX_RING) && c.tx_half().reading_side.froze.load(Acquire) != c.tx_froze.load(Relaxed)
}

#[cold]
fn follow(c: &Conn, fd: i32) {
    let _ = c.with_tx(|end| {
        let was = end.tx.in_ring();
        let _ = end.tx.look(c.tx_half()).map_err(|lie| broken(c, fd, lie));
        c.tx_froze.store(end.tx.froze_seen(), Relaxed);
        let left = was && !end.tx.in_ring();
        if left || end.tx.takes_back() {
            let _ = if left && !peer_has_ended(c) { returned(c, end, fd) } else { take_back(c, end, fd) };
        }
    });
}

/// Whether the peer has closed its end, or half of it: what it left is not a return.
fn peer_has_ended(c: &Conn) -> bool {
    c.rx_half().writer.fin.load(Acquire) != 0
}

/// Somebody else ended our stretch: the operator, or the reader on its way elsewhere.
fn returned(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    let held = c.words().hold.load(Relaxed) != 0 || member::holds();
    c.blame(if held { Reason::Detached } else { Reason::PeerClosing });
    let pumped = pump(c, end, fd);
    if held {
        end.rebegin_at = end.tx.pos(); // as soon as the operator allows
    }
    pumped
}

/// Our direction to the kernel for good, as far as that goes at once.
pub fn leave_ring(c: &Conn, fd: i32, reason: Reason) {
    c.raise(flag::KERNEL_ONLY);
    let _ = c.with_tx(|end| give_back(c, end, fd, reason));
}

/// Our direction to the kernel for good, with everything taken back before anything else is sent. Without a
/// reason: as a part of ending it.
pub fn tx_to_kernel(c: &'static Conn, fd: i32, reason: Option<Reason>) {
    c.raise(flag::KERNEL_ONLY);
    if !c.is_attached() {
        reason.inspect(|r| c.blame(*r));
        return;
    }
    let mut wait = block::Blocking::new(LAST_WAIT_US);
    loop {
        let pending = c.with_tx(|end| {
            let _ = match reason {
                Some(reason) => give_back(c, end, fd, reason),
                None => give_back_quietly(c, end, fd),
            };
            end.tx.takes_back()
        });
        if !matches!(pending, Ok(true)) || wait.pause(c, fd, Want::Out).is_err() {
            return;
        }
    }
}

/// How long at most a call that must not go on before everything is taken back waits for the kernel's buffers.
const LAST_WAIT_US: u64 = 2_000_000;

/// As [`give_back`], but as a part of ending the stream: no return that anybody counts.
pub fn give_back_quietly(c: &Conn, end: &mut TxEnd, fd: i32) -> Result<()> {
    end.tx.give_back(c.tx_half()).map_err(|lie| broken(c, fd, lie))?;
    take_back(c, end, fd)
}

/// Whether a writer that was refused may try again. None: the kernel carries and must be asked.
pub fn offers_space(c: &Conn, end: &mut TxEnd, fd: i32) -> Option<bool> {
    if end.tx.takes_back() {
        // While bytes wait to be taken back, nothing new may be promised.
        return if take_back(c, end, fd).is_ok() { None } else { Some(false) };
    }
    if !end.tx.in_ring() {
        return None;
    }
    match found_space(c, end, fd) {
        Ok(_) if !end.tx.in_ring() => None,
        Ok(_) if space::is_enough(end.tx.unread() as usize, c.tx_half().size) => {
            c.lower(flag::TX_BLOCKED);
            Some(true)
        }
        Ok(_) => Some(false),
        Err(_) => Some(true), // broken: the write will tell
    }
}
