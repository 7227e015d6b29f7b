//! Receiving. All calls that read from a connection come here.

use super::{arrive, iov, natively};
use crate::record::{Conn, flag};
use crate::wait::block::{self, Want};
use crate::{attach, errno, life, link};
use core::sync::atomic::Ordering::*;
use libc::{EAGAIN, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, iovec};
use sidestep_abi::Reason;
use sidestep_conn::{Advance, Lie, Read, Rx};
use sidestep_ring::space;
use sidestep_sys::{Errno, Result, arch, clock, tcp};

/// What one look at the connection brought.
enum Step {
    Bytes(usize),
    /// As `Bytes`, and there may be more behind a boundary: of the carrier, or of what one step can take.
    Part(usize),
    End,
    Empty,
}

/// Receives into `iov` as recvmsg(2) would. `native`: the program's own call.
#[inline]
pub fn recv(index: u32, fd: i32, iov: &[iovec], flags: i32, native: impl FnOnce() -> isize) -> isize {
    let c = arrive(index);
    if flags & (MSG_OOB | MSG_ERRQUEUE) != 0 {
        return native(); // never the byte stream; the writer's urgent data came by kernel
    }
    let mut native = Some(native);
    let passed = natively(c, || {
        let n = native.take().map_or(-1, |call| call());
        if n > 0 && flags & MSG_PEEK == 0 {
            c.early_rx.fetch_add(n as u64, Relaxed);
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
        None => errno::give(attached(index, c, fd, iov, flags)),
    }
}

fn attached(index: u32, c: &'static Conn, fd: i32, iov: &[iovec], flags: i32) -> Result<usize> {
    let want = iov::total(iov);
    if want == 0 {
        // recv(2) of nothing still waits for something.
        let mut byte = 0u8;
        return attached(index, c, fd, &iov::one((&raw mut byte).cast(), 1), flags | MSG_PEEK).map(|_| 0);
    }
    let whole = flags & MSG_WAITALL != 0 && flags & MSG_PEEK == 0;
    let (mut got, mut peeks, mut transit) = (0, 0, 0);
    let mut wait = block::Blocking::new(c.rx_timeout_us.load(Relaxed));
    loop {
        let step = c.with_rx(|rx| step(c, rx, life::number(index, fd), iov, got, flags));
        // A signal handler reads what it has interrupted the reading of: nothing there, for the moment.
        let step = step.unwrap_or(Err(Errno(EAGAIN)));
        match step {
            // Looking ahead takes nothing, so there is no place to wait for "more than that".
            Ok(Step::Bytes(n))
                if flags & (MSG_PEEK | MSG_WAITALL) == MSG_PEEK | MSG_WAITALL && n < want && peeks < PEEKS =>
            {
                peeks += 1;
                clock::nap_us(PEEK_US);
            }
            Ok(Step::Bytes(n)) if flags & MSG_PEEK != 0 => {
                if n == want || transit == PROMISED || !c.with_rx(|rx| (n as u64) < rx.owed()).unwrap_or(false) {
                    let _ = c.with_rx(|rx| rx.tell(n));
                    return Ok(n);
                }
                transit += 1;
                clock::nap_us(TRANSIT_US);
            }
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
            // What was there a moment ago is just being taken back, and comes by kernel at once.
            Ok(Step::Empty) if c.with_rx(|rx| comes_back(rx, got, transit)).unwrap_or(false) => {
                transit += 1;
                clock::nap_us(TRANSIT_US);
            }
            Ok(Step::Empty) if got > 0 && !whole => return Ok(got),
            Ok(Step::End) => return Ok(got),
            Ok(Step::Empty) if super::is_inherited(c) && life::hears_rings(c) => life::rx_to_kernel(c, Reason::Shared),
            Ok(Step::Empty) if flags & MSG_DONTWAIT != 0 || c.has(flag::NONBLOCK) => return some(got, Errno(EAGAIN)),
            Ok(Step::Empty) => match wait.until(index, c, fd, Want::In, got) {
                Ok(()) => {}
                Err(e) => return some(got, e),
            },
            Err(e) => return some(got, e),
        }
    }
}

/// MSG_PEEK with MSG_WAITALL looks so often, at such intervals, for the rest; then it returns what is there.
const PEEKS: u32 = 2000;
const PEEK_US: u64 = 500;

/// A reader waits so often, so long, for bytes on their way from the ring to the kernel: a millisecond in all.
const TRANSIT: u32 = 40;
const TRANSIT_US: u64 = 25;

/// So often for bytes that the program has been told of: it will not ask twice. Their writer has ended the stretch
/// and sends them in the same call, but it may have been put off the CPU in between.
const PROMISED: u32 = 40 * TRANSIT;

/// FIONREAD: how many bytes can be read now, by whichever carrier.
pub fn readable(c: &Conn, fd: i32) -> usize {
    let mut transit = 0;
    loop {
        let Reach { before, ring, owed } = c.with_rx(|rx| in_reach(rx, c)).unwrap_or_default();
        // Asked after the ring: should the stretch have ended since, the ring's bytes are coming by kernel, and may
        // be counted there already.
        let queued = u64::from(tcp::queued(fd).unwrap_or(0));
        let n = if queued < before { queued } else { before + ring.max(queued - before) };
        let waits = || c.with_rx(|rx| comes_back(rx, 0, transit)).unwrap_or(false);
        if n >= owed || !waits() {
            let _ = c.with_rx(|rx| rx.tell(n as usize));
            return n as usize;
        }
        transit += 1;
        clock::nap_us(TRANSIT_US);
    }
}

/// What lies where, in bytes.
#[derive(Default)]
struct Reach {
    /// The kernel's, before the ring's.
    before: u64,
    /// In the ring.
    ring: u64,
    /// In kernel and ring together there must be so many.
    owed: u64,
}

fn in_reach(rx: &mut Rx, c: &Conn) -> Reach {
    let half = c.rx_half();
    let (before, ring) = match rx.next(half) {
        Ok(Read::Ring(n)) => (0, n),
        Ok(Read::Kernel(limit)) => (limit, rx.beyond(half).1),
        Err(Lie) => (0, 0),
    };
    Reach { before, ring: ring as u64, owed: rx.owed().max(rx.on_its_way().min(1)) }
}

/// Whether a call that has `got` so many bytes, and has waited so often, waits for more. It may count on one byte if
/// the connection was readable, and on all that the program has been told of.
fn comes_back(rx: &mut Rx, got: usize, waited: u32) -> bool {
    if rx.owed() == 0 {
        return got == 0 && rx.on_its_way() > 0 && waited < TRANSIT;
    }
    if waited >= PROMISED {
        rx.take_back_promise(); // its writer is stopped: no further call waits for it
    }
    rx.owed() > 0
}

/// What has been received, if anything; else the error.
fn some(got: usize, error: Errno) -> Result<usize> {
    if got > 0 { Ok(got) } else { Err(error) }
}

fn step(c: &Conn, rx: &mut Rx, fd: i32, iov: &[iovec], skip: usize, flags: i32) -> Result<Step> {
    if c.has(flag::BROKEN) {
        return Err(Errno(libc::EPROTO));
    }
    if !c.is_attached() {
        return native_step(c, fd, iov, skip, flags);
    }
    let half = c.rx_half();
    loop {
        match rx.next(half).map_err(|lie| broken(c, fd, lie))? {
            Read::Ring(0) => match ask_kernel(c, rx, fd)? {
                Asked::Nothing => return Ok(Step::Empty),
                Asked::Ended => return rest(c, rx, fd, iov, skip, flags),
                Asked::Again => {}
            },
            Read::Ring(n) => {
                if let Some(n) = from_ring(c, rx, fd, iov, skip, flags, n)? {
                    return Ok(Step::Bytes(n));
                }
            }
            Read::Kernel(limit) => {
                let mut part = iov::empty();
                let room = iov::slice(iov, skip, limit.min(usize::MAX as u64) as usize, &mut part);
                let taken = iov::total(&part[..room]);
                return match from_kernel(c, rx, fd, (&part[..room], iov), skip, flags, limit) {
                    Ok(0) => rest(c, rx, fd, iov, skip, flags),
                    Ok(n) if flags & MSG_PEEK == 0 && (n as u64 == limit || n == taken || rx.owed() > 0) => {
                        Ok(Step::Part(n))
                    }
                    Ok(n) => Ok(Step::Bytes(n)),
                    Err(Errno(EAGAIN)) => {
                        c.lower(flag::HINT);
                        Ok(Step::Empty)
                    }
                    Err(e) => Err(as_reset(c, e)),
                };
            }
        }
    }
}

/// The connection has become native again under a call that is blocked on it: the slot may be somebody else's.
fn native_step(c: &Conn, fd: i32, iov: &[iovec], skip: usize, flags: i32) -> Result<Step> {
    let mut part = iov::empty();
    let room = iov::slice(iov, skip, usize::MAX, &mut part);
    // SAFETY: the program's own buffers.
    match unsafe { tcp::receive(fd, &part[..room], flags & !MSG_WAITALL) } {
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

/// Takes up to `available` bytes from the ring. None: the stretch was ended under our hands.
#[inline]
fn from_ring(
    c: &Conn,
    rx: &mut Rx,
    fd: i32,
    iov: &[iovec],
    skip: usize,
    flags: i32,
    available: usize,
) -> Result<Option<usize>> {
    let half = c.rx_half();
    let n = available.min(iov::total(iov) - skip);
    copy_out(c, rx.at(half), iov, skip, n, flags);
    if flags & MSG_PEEK != 0 {
        return Ok(Some(n));
    }
    attach::mark_upgraded(c);
    match rx.took_ring(half, n).map_err(|lie| broken(c, fd, lie))? {
        Advance::Frozen => Ok(None),
        Advance::Done => {
            c.words().counters[c.my_side()].ring_rx.store(rx.ring, Relaxed);
            tell_space(c, available - n);
            Ok(Some(n))
        }
    }
}

fn copy_out(c: &Conn, at: u64, iov: &[iovec], skip: usize, n: usize, flags: i32) {
    if flags & MSG_TRUNC != 0 {
        return; // tcp(7): the bytes are thrown away
    }
    let data = c.rx_data();
    // SAFETY: the program vouches for its buffers; `n` is at most the ring's size.
    iov::pieces(iov, skip, n, |to, len, done| unsafe { data.get(at.wrapping_add(done as u64), to, len) });
}

/// Wakes a writer that waits for space, once half of the ring is free.
#[inline]
fn tell_space(c: &Conn, left: usize) {
    let half = c.rx_half();
    if space::grant(half.writer, left, half.size) {
        notify_peer(c);
    }
}

/// Rings the peer's doorbells for this connection.
#[inline]
pub fn notify_peer(c: &Conn) {
    let bells = c.words().side[1 - c.my_side()].bells.load(Acquire);
    link::get(c.link.load(Relaxed)).notify(c.slot.load(Relaxed) as usize, bells);
}

fn from_kernel(
    c: &Conn,
    rx: &mut Rx,
    fd: i32,
    (part, whole): (&[iovec], &[iovec]),
    skip: usize,
    flags: i32,
    limit: u64,
) -> Result<usize> {
    // SAFETY: the program's own buffers.
    let n = unsafe { tcp::receive(fd, part, flags & !MSG_WAITALL) }?;
    if flags & MSG_PEEK != 0 {
        return Ok(if n as u64 == limit { n + peek_beyond(c, rx, whole, skip + n) } else { n });
    }
    rx.took_kernel(n);
    c.words().counters[c.my_side()].kernel_rx.store(rx.kernel, Relaxed);
    Ok(n)
}

/// A look ahead that reached the end of what the kernel carries goes on in the ring.
fn peek_beyond(c: &Conn, rx: &Rx, iov: &[iovec], skip: usize) -> usize {
    let (at, there) = rx.beyond(c.rx_half());
    let n = there.min(iov::total(iov) - skip);
    copy_out(c, at, iov, skip, n, 0);
    n
}

/// What we took back met a socket that was gone: to the program that is one and the same reset.
fn as_reset(c: &Conn, e: Errno) -> Errno {
    let killed = c.rx_half().writer.fin.load(Acquire) == 0;
    if e == Errno(libc::EPIPE) && killed { Errno(libc::ECONNRESET) } else { e }
}

enum Asked {
    /// The kernel has nothing either.
    Nothing,
    /// The stream has ended.
    Ended,
    /// Something has changed; look again.
    Again,
}

/// The ring is empty: whether the kernel knows of an end or an error. Asked only when there is a sign, and now
/// and then for programs that never wait.
fn ask_kernel(c: &Conn, rx: &mut Rx, fd: i32) -> Result<Asked> {
    let half = c.rx_half();
    let due = c.rx_asked.load(Relaxed);
    if !c.has(flag::HINT) && half.writer.fin.load(Acquire) == 0 && arch::ticks() < due {
        return Ok(Asked::Nothing);
    }
    c.rx_asked.store(arch::ticks() + clock::ticks_of_us(1000), Relaxed);
    let mut byte = 0u8;
    let probe = iov::one((&raw mut byte).cast(), 1);
    // SAFETY: one writable byte.
    match unsafe { tcp::receive(fd, &probe, MSG_PEEK) } {
        Ok(0) => Ok(Asked::Ended),
        Ok(_) if rx.next(half) == Ok(Read::Ring(0)) => Err(foreign_bytes(c, fd)),
        Ok(_) => Ok(Asked::Again),
        Err(Errno(EAGAIN)) => {
            c.lower(flag::HINT);
            Ok(Asked::Nothing)
        }
        Err(e) => Err(as_reset(c, e)),
    }
}

/// The kernel says that the stream has ended; what a writer left in the ring comes before.
fn rest(c: &Conn, rx: &mut Rx, fd: i32, iov: &[iovec], skip: usize, flags: i32) -> Result<Step> {
    let half = c.rx_half();
    let left = rx.rest(half).map_err(|lie| broken(c, fd, lie))?;
    let n = left.min(iov::total(iov) - skip);
    if n == 0 {
        return if died_unread(c) { Err(Errno(libc::ECONNRESET)) } else { Ok(Step::End) };
    }
    copy_out(c, rx.at(half), iov, skip, n, flags);
    if flags & MSG_PEEK == 0 {
        rx.took_rest(half, n).map_err(|lie| broken(c, fd, lie))?;
    }
    Ok(Step::Bytes(n))
}

/// The stream has ended without a word from the peer's library: it was killed. If it had not read all that we
/// sent, the kernel would have reset the connection; told once, like any socket error.
fn died_unread(c: &Conn) -> bool {
    let said = c.rx_half().writer.fin.load(Acquire) != 0 || c.has(flag::RX_SHUT | flag::TX_SHUT);
    let unread = || {
        c.with_tx(|end| {
            let _ = end.tx.look(c.tx_half());
            end.tx.unread() > 0 || end.tx.takes_back()
        })
    };
    !said && (c.has(flag::DIED_UNREAD) || unread().unwrap_or(false)) && c.raise(flag::RESET_TOLD)
}

/// Bytes came by kernel while the ring carries: somebody writes to the socket behind our back.
#[cold]
fn foreign_bytes(c: &Conn, fd: i32) -> Errno {
    c.blame(Reason::CountMismatch);
    broken(c, fd, Lie)
}

/// The peer wrote what no correct peer writes: the connection ends here, with an error of its own.
#[cold]
pub fn broken(c: &Conn, fd: i32, _lie: Lie) -> Errno {
    if c.raise(flag::BROKEN) {
        c.blame(Reason::BrokenPeer);
        tcp::shutdown(fd, libc::SHUT_RDWR);
    }
    Errno(libc::EPROTO)
}
