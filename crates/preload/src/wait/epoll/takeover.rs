//! Taking registrations over when a connection is attached.

use super::giveback::{note_native, put};
use super::mask::watched;
use super::{ET, EXCLUSIVE, ONESHOT, family, kernel_ctl, kick, own_waiter, tag};
use crate::record::Conn;
use crate::wait::readiness::{self, IN};
use crate::wait::sets::{self, Inner, Reg, Set, reg};
use crate::{arena, waiter};
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD};
use sidestep_abi::Reason;
use sidestep_ring::side;
use sidestep_sys::{Errno, Result, arch, fdinfo};

/// Manages the registrations of an attached connection in every set that holds it. `armed`: the program has just asked for
/// events, so even a one-shot registration is known to be armed.
///
/// Err: why some set could not: its registration is still the kernel's, and the connection must not use rings.
pub fn manage(index: u32, c: &'static Conn, fd: i32, armed: bool) -> core::result::Result<(), Reason> {
    let mut result = Ok(());
    for (_, s) in sets::all() {
        let managed = s.with(|inner| manage_in(s, inner, index, fd, armed)).unwrap_or(Ok(false));
        // A one-shot registration that has fired stays managed if the stack ends, and the connection has another slot afterwards.
        if s.has(fd, Reg::is_managed)
            && let Some(p) = own_waiter(s)
        {
            side::add_doorbell(&c.words().side[c.my_side()], p);
        }
        match managed {
            Ok(true) => {
                // From the arming of the doorbell on all news ring. Earlier news are looked for now. Another thread may have
                // reported them: then the edge is consumed. The order of bytes that came by kernel is that of the kernel's
                // list.
                let by_ring = readiness::ring_has_bytes(c);
                let since = if by_ring { c.rx_half().news_at() } else { u64::MAX };
                let is_first = s.with(|inner| inner.hear_since(fd, since));
                kick(s, is_first == Some(true));
            }
            Ok(false) => {}
            Err(reason) => result = Err(reason),
        }
    }
    result
}

fn manage_in(s: &Set, inner: &mut Inner, index: u32, fd: i32, armed: bool) -> core::result::Result<bool, Reason> {
    let Some(r) = inner.reg(fd).filter(|r| r.is_native()) else {
        return Ok(false);
    };
    if s.is_kernels.load(Relaxed) {
        return Err(Reason::Foreign);
    }
    if s.waiter().is_none() {
        may_have_waiter(s)?;
    }
    if r.events & ONESHOT != 0 && !armed {
        return Ok(false); // whether it has fired is unknown until the program arms it again
    }
    let events = r.events;
    r.conn = index;
    ensure_waiter(s).ok_or(Reason::Places)?;
    match put(s, fd, events, (watched(s, events), tag::of(fd))) {
        Ok(()) => {}
        Err(Errno(libc::ENOMEM | libc::ENOSPC)) => return Err(Reason::Memory),
        Err(_) => {
            inner.clear(fd); // the kernel does not know the registration any more
            return Ok(false);
        }
    }
    if let Some(r) = inner.reg(fd) {
        r.state |= reg::MANAGED | reg::FRESH | reg::EDGE;
    }
    recount_natives(s, inner);
    Ok(true)
}

/// Manages what [`manage`] had to leave: one-shot registrations that fired before the connection was attached, and have not
/// been armed since. /proc says which ones these are.
#[cold]
pub fn manage_fired(c: &Conn, index: u32, fd: i32) {
    for (_, s) in sets::all() {
        manage_one_shot(s, c, index, fd, None);
    }
}

/// As [`manage_fired`], in one set. `has_fired`: given if nobody waits in the set, so that an armed registration stays armed.
/// It tells which registrations, by their data, have just reported to us.
pub(super) fn manage_one_shot(s: &Set, c: &Conn, index: u32, fd: i32, has_fired: Option<&dyn Fn(u64) -> bool>) {
    let taken = s.with(|inner| {
        let r = inner.reg(fd).filter(|r| r.is_native() && r.events & (ONESHOT | EXCLUSIVE) == ONESHOT)?;
        let is_armed = has_fired.is_some_and(|has_fired| has_fired(r.data))
            || fdinfo::epoll_mask(s.fd.load(Relaxed), fd)? & !PRIVATE != 0;
        if is_armed && has_fired.is_none() || s.is_kernels.load(Relaxed) {
            return None;
        }
        r.conn = index;
        let mask = watched(s, if is_armed { r.events } else { 0 });
        let p = ensure_waiter(s)?;
        kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_MOD, fd, mask, tag::of(fd)).ok()?;
        inner.reg(fd)?.state |= reg::MANAGED | reg::EDGE | if is_armed { reg::FRESH } else { reg::DISARMED };
        Some(p)
    });
    if let Some(Some(p)) = taken {
        side::add_doorbell(&c.words().side[c.my_side()], p);
        let is_first = s.with(|inner| inner.hear_since(fd, arch::ticks()));
        kick(s, is_first == Some(true));
    }
}

/// Bits of the mask that the kernel keeps when a one-shot registration has fired.
const PRIVATE: u32 = ONESHOT | ET | EXCLUSIVE | libc::EPOLLWAKEUP as u32;

/// Makes the program's ADD or MOD of `fd` as a managed registration. None: that is impossible.
pub(super) fn take_over(s: &Set, index: u32, op: i32, fd: i32, wanted: (u32, u64)) -> Option<Result<usize>> {
    let was_native = s.has(fd, Reg::is_native);
    if (op == EPOLL_CTL_ADD) == was_native {
        return None; // the kernel is to report the error
    }
    let p = s.with(|_| ensure_waiter(s)).flatten()?; // under the lock, so that a set gets only one waiter
    if let Err(e) = kernel_ctl(s.fd.load(Relaxed), op, fd, watched(s, wanted.0), tag::of(fd)) {
        return Some(Err(e));
    }
    s.with(|inner| {
        if let Some(r) = inner.register(fd, wanted, reg::PRESENT | reg::MANAGED | reg::EDGE) {
            (r.conn, r.ends) = (index, 0);
        }
    });
    let c = arena::conn(index);
    side::add_doorbell(&c.words().side[c.my_side()], p);
    // From the arming of the doorbell on all news ring. Earlier news are looked for now.
    let is_first = s.with(|inner| inner.hear_since(fd, arch::ticks()));
    kick(s, is_first == Some(true));
    Some(Ok(0))
}

/// Makes the set a waiter. Its doorbell becomes a member of the set, edge-triggered so that it need never be read.
fn ensure_waiter(s: &Set) -> Option<u32> {
    if !family::may_manage(s) {
        return None;
    }
    if let Some(p) = s.waiter() {
        return Some(p);
    }
    may_have_waiter(s).ok()?;
    let p = waiter::acquire()?;
    // Set before the kernel knows the doorbell: a thread that it wakes must recognise it.
    s.set_waiter(p);
    if kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_ADD, waiter::doorbell(p), IN | ET, tag::of_doorbell()).is_err() {
        s.set_no_waiter();
        waiter::release(p);
        return None;
    }
    // Threads that sleep in the set already do not look at rings yet.
    waiter::ring(p);
    Some(p)
}

/// Whether the set may have a doorbell. Err: why not.
fn may_have_waiter(s: &Set) -> core::result::Result<(), Reason> {
    match (family::may_manage(s), s.gave_waiter_up()) {
        (false, _) => Err(Reason::Shared),
        (true, true) => Err(Reason::Places),
        (true, false) => Ok(()),
    }
}

/// Whether some set has an unmanaged registration of `fd`.
pub fn has_unmanaged(fd: i32) -> bool {
    sets::all().any(|(_, s)| s.has(fd, Reg::is_native))
}

/// Whether some set holds `fd`, and may report it to the program.
pub fn is_watched(fd: i32) -> bool {
    sets::all().any(|(_, s)| s.has(fd, |r| r.is_present() && r.state & reg::DISARMED == 0))
}

/// The program has changed the state of a connection: edge-triggered registrations report what holds now, as the kernel's do.
pub fn changed(fd: i32) {
    for (_, s) in sets::all() {
        if let Some(is_first) =
            s.with(|inner| inner.reg(fd).is_some_and(|r| r.is_managed()).then(|| inner.hear_edge(fd))).flatten()
        {
            kick(s, is_first);
        }
    }
}

/// After a registration was taken over: counts whether the set has unmanaged ones left. If not, no order among them and rings
/// is to be kept. In a large set the count would take too long.
fn recount_natives(s: &Set, inner: &mut Inner) {
    if inner.top > COUNTED {
        return;
    }
    s.has_level.store(false, Relaxed);
    s.has_edge.store(false, Relaxed);
    for fd in 0..inner.top {
        if let Some(events) = inner.reg(fd).filter(|r| r.is_native()).map(|r| r.events) {
            note_native(s, events);
        }
    }
}

/// Sets with descriptors up to this number are not large.
const COUNTED: i32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use crate::stream::unrung::tests::{SLOT, attached, silent_link};

    /// A descriptor that no test has.
    const FD: i32 = 4000;

    #[test]
    fn a_fired_registration_is_rung_by_the_slot_that_the_connection_has_got_anew() {
        let at = silent_link(0x7e61);
        let (c, index) = (attached(at, SLOT), sets::create(-1).expect("a record"));
        let (s, place) = (sets::get(index), waiter::acquire().expect("a waiter"));
        s.set_waiter(place);
        let fired = reg::PRESENT | reg::MANAGED | reg::DISARMED;
        s.with(|inner| inner.register(FD, (IN | ONESHOT, 7), fired).is_some());
        assert_eq!(manage(0, c, FD, false), Ok(()));
        assert_eq!(side::doorbells(&c.words().side[0]), 1 << place, "the program arms it, and hears of nothing");
        s.destroy();
        s.refs.store(0, Release);
        link::remove(at);
    }
}
