//! Into a slot and back to the kernel: assignment, readiness, demotion.

use crate::record::{self, Conn, flag};
use crate::stream::{late, parked, peer};
use crate::{arena, blocked, counters, errno, handlers, link, settings, wait};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_abi::Reason;
use sidestep_conn::{Event, Flip, Phase, Rx, Writer, is_all_by_kernel};
use sidestep_ring::{counters as shared, side};
use sidestep_sys::tcp::{self, Consumed};

/// Reason why this process upgrades no connection any more; 0: it does upgrade.
static STOPPED: AtomicU32 = AtomicU32::new(0);

/// Ends upgrades in this process.
pub fn stop(reason: Reason) {
    STOPPED.store(reason as u32, Relaxed);
}

/// Why this process upgrades nothing any more. None: it does upgrade.
pub fn stopped() -> Option<Reason> {
    Reason::from_code(STOPPED.load(Relaxed) as u8)
}

/// The broker has paired the offer: this is our slot.
pub fn assign(index: u32, (c, generation): (&'static Conn, u32), link_index: u32, slot: u32) {
    let l = link::get(link_index);
    if arena::held_by_others(c) {
        // A child was forked while the offer was under way, perhaps before the link was mapped. It could not use the slot.
        c.reason.store(Reason::Shared as u32, Relaxed);
        if c.phase.go_in(generation, Event::Lose).is_some() {
            l.release(slot);
        }
        return;
    }
    let side = l.my_side();
    let (tx_ring, size) = l.ring(slot as usize, side);
    let (rx_ring, _) = l.ring(slot as usize, 1 - side);
    // SAFETY: inside a mapping of a link, which is never unmapped, only replaced by other memory of the same size.
    unsafe { c.map(l.slot(slot as usize), tx_ring, rx_ring, size) };
    c.link.store(link_index, Relaxed);
    c.slot.store(slot % sidestep_abi::link::SLOTS as u32, Relaxed);
    c.side.store(side as u32, Relaxed);
    c.put(flag::STACK, l.is_stacks());
    l.set_conn(slot, Some(index));
    if c.phase.go_in(generation, Event::Assign).is_none() {
        return l.set_conn(slot, None); // closed meanwhile by another thread, which has withdrawn the offer
    }
    let _ = advance(index, c); // if a doorbell has not reached the peer yet, a later call advances
}

/// Takes the connection as far as possible now: into the state machine once no thread is inside a native call, and to
/// readiness once the peer can ring all our doorbells. False: the peer still lacks a doorbell.
#[inline]
pub fn advance(index: u32, c: &'static Conn) -> bool {
    if matches!(c.phase.phase(), Phase::Assigned { .. }) && c.gate.is_empty() {
        errno::keep(|| enter(index, c));
    }
    !c.phase.is(Phase::Attached) || errno::keep(|| get_ready(index, c))
}

/// From counted native calls to the state machine, if the kernel's counts agree with ours.
#[cold]
fn enter(index: u32, c: &'static Conn) {
    let fd = arena::local(index).fd.load(Relaxed) as i32;
    let entered = c.with_rx(|rx| {
        c.with_tx(|end| {
            // Checked again under the locks: another thread may have attached the connection, or may have entered a native
            // call.
            if !matches!(c.phase.phase(), Phase::Assigned { .. }) || !c.gate.is_empty() {
                return Ok(false);
            }
            if let Some(reason) = needs_kernel(fd) {
                return Err(reason);
            }
            if c.has(flag::STACK) && c.has(flag::RX_SHUT) {
                return Err(Reason::SocketNeeded); // the kernel would forget it
            }
            c.put(flag::TELLS_UNREAD, tcp::tells_unread(fd));
            let (read, written) = (c.early_rx.load(Relaxed), c.early_tx.load(Relaxed));
            match (tcp::consumed(fd), tcp::written(fd)) {
                (Consumed::Moving, _) => return Ok(false),
                (Consumed::Bytes(r), Some(w)) if r == read && w == written => {}
                (Consumed::Bytes(_), Some(_)) => return Err(Reason::CountMismatch),
                _ => return Err(Reason::PeerClosing),
            }
            *rx = Rx::native(read);
            *end = writer(c, written);
            for (timeout, name) in [(&c.rx_timeout_us, libc::SO_RCVTIMEO), (&c.tx_timeout_us, libc::SO_SNDTIMEO)] {
                if timeout.load(Relaxed) != record::NO_WAIT {
                    timeout.store(tcp::timeout_us(fd, name), Relaxed);
                }
            }
            side::set_number(&c.words().side[c.my_side()], fd as u32);
            let counters = &c.words().counters[c.my_side()];
            shared::set_kernel_rx(counters, read);
            shared::set_kernel_tx(counters, written);
            Ok(c.phase.go(Event::Enter).is_some())
        })
    });
    match entered {
        Ok(Ok(Ok(true))) => {
            handlers::install_all();
            wait::epoll::for_each_number(index, |n| {
                if let Err(reason) = wait::epoll::manage(index, c, n, false) {
                    c.keep_on_kernel(reason);
                }
            });
        }
        Ok(Ok(Err(reason))) => refuse(c, reason),
        _ => {}
    }
}

/// asm-generic/socket.h
pub const SO_PEEK_OFF: i32 = 42;

/// Why the kernel must carry the bytes: the socket has an option that was set before the library followed the descriptor, or is inherited
/// from the listener.
fn needs_kernel(fd: i32) -> Option<Reason> {
    let option = |name| tcp::option::<i32>(fd, libc::SOL_SOCKET, name);
    // Notices of MSG_ZEROCOPY make the kernel say POLLERR, which would seem a reset.
    if option(libc::SO_ZEROCOPY).is_ok_and(|set| set != 0) {
        return Some(Reason::KernelFeature);
    }
    let has_one = option(libc::SO_RCVLOWAT).is_ok_and(|mark| mark > 1)
        || option(SO_PEEK_OFF).is_ok_and(|at| at >= 0)
        || tcp::has_timestamps(fd)
        || tcp::has_filter(fd);
    has_one.then_some(Reason::SocketOption)
}

/// Our direction, of which the kernel has had all bytes. With the test aid the stack's connections flip as a whole
/// (`stream::stretch`).
fn writer(c: &Conn, written: u64) -> Writer {
    match settings::get().flip {
        1.. if c.has(flag::STACK) => Writer::native(written, Flip::NEVER).restless(),
        every => Writer::native(written, Flip::every(every)),
    }
}

/// The connection is unfit for a ring: gives its slot back.
fn refuse(c: &Conn, reason: Reason) {
    if c.phase.go(Event::Unfit).is_some() {
        c.keep_on_kernel(reason);
        give_slot_back(c);
    }
}

pub fn give_slot_back(c: &Conn) {
    c.lower(flag::STACK); // the slot's words may be another connection's soon
    let index = c.link.load(Relaxed);
    let (l, slot) = (link::get(index), c.slot.load(Relaxed));
    l.set_conn(slot, None);
    l.release(slot);
    link::collect(index);
}

/// After this many calls on a connection with an unmanaged registration in some set, the registration is looked up in /proc.
const UNMANAGED_TRIES: u32 = 16;

/// Declares to the peer that we read rings, once the peer can ring every waiter of this connection. False: not yet.
#[cold]
fn get_ready(index: u32, c: &Conn) -> bool {
    let l = link::get(c.link.load(Relaxed));
    let mut bells = side::doorbells(&c.words().side[c.my_side()]);
    while bells != 0 {
        if !l.knows(bells.trailing_zeros()) {
            return false;
        }
        bells &= bells - 1;
    }
    let mut has_unmanaged = false;
    wait::epoll::for_each_number(index, |n| has_unmanaged |= wait::epoll::has_unmanaged(n));
    if has_unmanaged {
        // The program's next wait may arm the registration. After many calls without that, it may never be armed.
        let tries = c.ops.fetch_add(1, Relaxed);
        if tries >= UNMANAGED_TRIES && tries.is_power_of_two() {
            wait::epoll::for_each_number(index, |n| wait::epoll::manage_fired(c, index, n));
        }
        return true;
    }
    // A thread that gives the direction up for good first changes the phase, and then withdraws readiness under this lock.
    let has_become_ready = c.with_rx(|_| {
        let goes = c.phase.go(Event::Ready).is_some();
        if goes {
            c.rx_half().set_ready();
        }
        goes
    });
    // A peer process looks when it writes; the stack has nothing to write, and waits for this.
    if c.has(flag::STACK) && matches!(has_become_ready, Ok(true)) {
        peer::notify(c);
    }
    true
}

/// Makes a connection native again that is on the kernel for good and has nothing left in a ring. False: the conditions do
/// not hold yet.
#[cold]
pub fn demote(index: u32, c: &Conn) -> bool {
    let fd = arena::local(index).fd.load(Relaxed) as i32;
    let done = c.with_rx(|rx| {
        c.with_tx(|end| {
            let half = c.rx_half();
            if !half.is_unwanted() {
                half.withdraw_readiness();
                half.hint_freeze();
            }
            let queued = tcp::queued(fd).map_or(0, u64::from);
            if !c.is_attached() || late::has_some(index) || !is_all_by_kernel(rx, &end.tx, half, queued) {
                return false;
            }
            if c.phase.is(Phase::Returning { for_good: false }) && !count_anew(index, c, fd, rx, end) {
                return false;
            }
            c.early_rx.store(rx.kernel, Relaxed);
            c.early_tx.store(end.tx.kernel(), Relaxed);
            c.phase.go(Event::Demote).is_some()
        })
    });
    let done = matches!(done, Ok(Ok(true)));
    if done {
        wait::epoll::for_each_number(index, wait::epoll::demoted);
        renew(c);
    }
    done
}

/// The stack has let go. The kernel has counted the connection's bytes anew since it was last given back, so both ends do that, too.
/// False: not now.
fn count_anew(index: u32, c: &Conn, fd: i32, rx: &mut Rx, end: &mut Writer) -> bool {
    if arena::held_by_others(c) {
        c.keep();
        return true;
    }
    // A thread that is blocked still looks at the slot; a parked socket is not the kernel's yet.
    if blocked::is_any(index) || parked::is_parked(c) {
        return false;
    }
    match (tcp::consumed(fd), tcp::written(fd)) {
        (Consumed::Bytes(read), Some(written)) => {
            let before =
                [rx.kernel.saturating_sub(read), end.tx.kernel().saturating_sub(written), rx.ring, end.tx.ring];
            if rx.ring + end.tx.ring > 0 {
                c.pause.forget(); // the stack has carried it meanwhile
            }
            counters::add_bytes(before, true);
            (*rx, *end) = (Rx::native(read), Writer::native(written, Flip::NEVER));
            true
        }
        (Consumed::Moving, _) => false,
        _ => {
            c.keep();
            true
        }
    }
}

/// If the kernel carries only for now, another stack may carry the connection.
fn renew(c: &Conn) {
    if c.phase.go(Event::Renew).is_some() {
        give_slot_back(c);
        for count in [&c.ops, &c.quick_ops, &c.tx_froze] {
            count.store(0, Relaxed);
        }
        c.lower(flag::TX_BLOCKED | flag::UNHEARD | flag::HINT); // of the slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_socket_that_had_zero_copy_before_stays_on_the_kernel() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let (fd, on) = (socket.as_raw_fd(), 1_i32);
        assert!(needs_kernel(fd).is_none());
        // SAFETY: one int, alive.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, (&raw const on).cast(), 4) };
        assert_eq!(set, 0);
        assert!(matches!(needs_kernel(fd), Some(Reason::KernelFeature)));
    }
}
