//! Whether the library sees a program's waits. Some programs register through libc, and wait by a system call of their own. So
//! a registration proves no wait. A connection stays on the kernel until a wait has been seen for each set that holds it.

use super::entries::{self, FEW};
use super::giveback::{drop_doorbell, for_each_managed};
use super::tag::{self, Source};
use super::takeover::{has_unmanaged, manage, manage_one_shot};
use super::{ONESHOT, family, news, report, shared};
use crate::drain::{self, Batch};
use crate::fdtable::{self, Kind};
use crate::record::flag;
use crate::wait::Deadline;
use crate::wait::sets::{self, Reg, Set};
use crate::{arena, critical, errno, suspend, thread};
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::*;
use libc::epoll_event;
use sidestep_abi::Reason;
use sidestep_sys::{arch, clock, process};

/// An attached connection is in the set, unmanaged: another thread has attached it just now, or the set cannot be managed.
#[cold]
pub(super) fn share(s: &Set, conn: u32, fd: i32, events: u32) {
    let c = arena::conn(conn);
    if arena::is_inherited(c) {
        // The parent may have the set, too, and only the kernel can report to its waits.
        return drain::to_kernel(c, fd, Reason::Shared);
    }
    if !is_seen(s) {
        return suspend::suspend(c, fd);
    }
    manage_all(conn, fd, events & ONESHOT == 0);
}

/// Takes over the unmanaged registrations of an attached connection. If all are managed then, the connection may use rings.
fn manage_all(conn: u32, fd: i32, armed: bool) {
    let c = arena::conn(conn);
    match manage(conn, c, fd, armed) {
        Err(reason) => drain::to_kernel(c, fd, reason),
        Ok(()) if may_use_rings(conn) => suspend::resume(c),
        Ok(()) => suspend::suspend(c, fd),
    }
}

/// Whether all registrations of an attached connection, under all its descriptors, are managed, and a wait has been seen for
/// each of their sets.
fn may_use_rings(conn: u32) -> bool {
    let mut may = true;
    super::for_each_number(conn, |fd| may &= may_be_offered(fd) != Some(false) && !has_unmanaged(fd));
    may
}

/// The library sees a wait for this set.
#[inline]
pub fn saw_wait(index: u32) {
    let s = sets::get(index);
    if !s.is_waited_for.load(Relaxed) {
        errno::keep(|| trust_once(s));
    }
}

/// Longest wait for another thread that runs [`trust`]. It takes microseconds, but on a busy machine its turn may come late, and a
/// peer of an inherited connection may keep a [`Batch`] waiting.
const CHANGE_US: u64 = 3_000_000;
const CHANGE_LOOK_US: u64 = 20;

/// If several threads begin to wait together, one takes the registrations over. The others wait until that is done: otherwise
/// the kernel would report to them what the library reports once more.
#[cold]
fn trust_once(s: &Set) {
    // No handler of the program may run in between: it might jump out, or wait for another thread.
    let is_done = critical::section(|| {
        let is_first = begins_change(s, thread::tid());
        if is_first {
            trust(s);
            s.changer.store(0, Release);
        }
        is_first
    });
    if is_done {
        return;
    }
    let deadline = Deadline::after_ns(Some(CHANGE_US * 1000));
    while s.changer.load(Acquire) != 0 && !deadline.has_passed() {
        clock::nap_us(CHANGE_LOOK_US);
    }
}

/// Whether thread `me` is to make the change: no other one makes it, or the one that began it does not exist any more.
fn begins_change(s: &Set, me: u32) -> bool {
    let claim = |from| s.changer.compare_exchange(from, me, AcqRel, Acquire);
    match claim(0) {
        Ok(_) => true,
        Err(other) => (other == me || !process::goes_on(other)) && claim(other).is_ok(),
    }
}

fn trust(s: &Set) {
    if family::is_held(s) {
        return;
    }
    // A connection that a parent has attached may be registered in a way that only the parent knows, so it goes to the kernel.
    let batch = Batch::begin();
    for_each_in(s, |fd, conn| {
        if arena::is_inherited(arena::conn(conn)) {
            batch.to_kernel(arena::conn(conn), fd, Reason::Shared);
        }
    });
    let mut ready = [const { MaybeUninit::uninit() }; FEW];
    let ready = in_order(s, &mut ready);
    // Before anybody waits in the set.
    for_each_own(s, |fd, conn| {
        let has_fired = |data| ready.iter().any(|event| event.u64 == data);
        manage_one_shot(s, arena::conn(conn), conn, fd, Some(&has_fired))
    });
    s.is_waited_for.store(true, Release);
    for_each_own(s, |fd, conn| {
        if may_be_offered(fd) == Some(true) {
            manage_all(conn, fd, false);
        }
    });
    // The kernel repeats events of registrations that were readable when taken over. They are no further news.
    let mut more = [const { MaybeUninit::uninit() }; FEW];
    let more = in_order(s, &mut more);
    news::hear_kernel(s, ready);
    news::hear_kernel(s, more);
    list_anew(s, ready);
    arm_others(s, more);
}

/// The kernel's events of a set with attached connections, in the kernel's order.
fn in_order<'a>(s: &Set, room: &'a mut [MaybeUninit<epoll_event>]) -> &'a [epoll_event] {
    let any = Cell::new(false);
    for_each_own(s, |_, _| any.set(true));
    if !any.get() {
        return &[];
    }
    entries::look(s, room).unwrap_or(&[])
}

/// Lists the registrations that were taken over, in the order in which the kernel had them `ready`.
fn list_anew(s: &Set, ready: &[epoll_event]) {
    if ready.is_empty() {
        return;
    }
    s.with(|inner| {
        let mut only_ours = true;
        for event in ready {
            let (fd, is_new) = match tag::source(event.u64) {
                Source::Managed(fd) => (Some(fd), false),
                _ => (report::registered(&mut inner.regs, event.u64, Reg::is_awaited), true),
            };
            if let Some(fd) = fd {
                inner.ready.list.remove(&mut inner.regs, fd as u32);
                if is_new {
                    inner.hear_edge(fd)
                } else {
                    inner.hear(fd, arch::ticks())
                };
                inner.settle();
            } else if core::mem::take(&mut only_ours) {
                inner.ready.arm(arch::ticks()); // what is listed by now comes before the kernel's events
            }
        }
    });
    arm_others(s, ready);
}

/// Makes the kernel repeat events that it has reported to us, and that the program has not seen.
fn arm_others(s: &Set, told: &[epoll_event]) {
    if told.is_empty() || !s.has_edge.load(Relaxed) {
        return;
    }
    let is_told = |data| told.iter().any(|event| event.u64 == data);
    s.with(|inner| (0..inner.top).for_each(|fd| report::arm_again(s, &mut inner.regs, fd, is_told)));
}

/// Calls `each` for the connections of the set that this process has attached.
fn for_each_own(s: &Set, each: impl Fn(i32, u32)) {
    for_each_in(s, |fd, conn| {
        if !arena::is_inherited(arena::conn(conn)) {
            each(fd, conn);
        }
    });
}

/// Calls `each` for the attached connections of the set.
fn for_each_in(s: &Set, each: impl Fn(i32, u32)) {
    fdtable::for_each(|fd, kind| {
        if let Kind::Conn(conn) = kind
            && arena::conn(conn).is_attached()
            && s.has(fd, Reg::is_present)
        {
            each(fd, conn);
        }
    });
}

/// The program has removed `fd` from the set.
#[cold]
pub(super) fn removed(s: &Set, fd: i32) {
    if !is_seen(s) {
        return reconsider(fd);
    }
    // Some programs remove the descriptor for each message, and add it to wait for the next one. That proves a wait.
    if let Kind::Conn(conn) = fdtable::get(fd) {
        arena::conn(conn).raise(flag::WAITED);
    }
}

/// A set no longer holds `fd`, or holds it managed: ends a suspension if nothing else requires it. Not in a forked child that closes
/// what it has inherited: the suspension is for the sake of its parent's sets.
pub(super) fn reconsider(fd: i32) {
    if let Kind::Conn(conn) = fdtable::get(fd)
        && arena::conn(conn).is_attached()
        && !arena::is_inherited(arena::conn(conn))
        && suspend::is_suspended(arena::conn(conn))
        && may_use_rings(conn)
    {
        suspend::resume(arena::conn(conn));
    }
}

/// Whether a wait for the set has been seen. Some programs register through libc, and wait by a system call of their own.
pub(super) fn is_seen(s: &Set) -> bool {
    s.is_waited_for.load(Acquire)
}

/// Whether a wait has been seen for each set that holds the connection, so that it may use rings. None: no set holds it.
pub fn may_be_offered(fd: i32) -> Option<bool> {
    sets::all()
        .filter(|(_, s)| s.has(fd, Reg::is_present))
        .map(|(_, s)| s.is_waited_for.load(Acquire))
        .reduce(|all, one| all && one)
}

/// A descriptor of the set was closed.
pub fn closed(index: u32, fd: i32) {
    let s = sets::get(index);
    if s.fd.load(Relaxed) == fd {
        fdtable::for_each(|other, kind| {
            if kind == Kind::Set(index) {
                s.fd.store(other, Relaxed);
            }
        });
    }
    // Two threads may close the last two numbers at once.
    if s.refs.fetch_update(AcqRel, Acquire, |refs| (refs > 1).then(|| refs - 1)).is_ok() {
        return;
    }
    for_each_managed(s, |_, c| drop_doorbell(s, c));
    s.destroy();
    shared::close(s);
    let was_waited_for = s.is_waited_for.load(Relaxed);
    // From now on another set may take the record.
    if s.refs.fetch_sub(1, AcqRel) == 1 && !was_waited_for {
        fdtable::for_each(|fd, kind| {
            if matches!(kind, Kind::Conn(_)) {
                reconsider(fd);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::unrung::tests::{SLOT, attached, index_of, silent_link};
    use crate::{link, record, waiter};
    use core::sync::atomic::AtomicU32;
    use sidestep_ring::side;

    /// The number of a thread that has ended.
    fn gone() -> u32 {
        let tid = std::thread::spawn(process::tid).join().expect("a number");
        while process::goes_on(tid) {
            std::thread::yield_now(); // the thread has been joined, but the kernel still knows its number
        }
        tid
    }

    #[test]
    fn a_forked_child_leaves_a_suspension_to_its_parent() {
        let (at, fd) = (silent_link(0x7e69), 4004);
        let c = attached(at, SLOT);
        assert!(fdtable::set(fd, Kind::Conn(index_of(c))));
        let is_left_by = |owner| {
            side::set_away(&c.words().side[0]);
            c.owner.store(owner, Relaxed);
            reconsider(fd);
            suspend::is_suspended(c)
        };
        assert!(is_left_by(record::NOBODY), "the peer would write where no set of the parent's is rung");
        assert!(!is_left_by(arena::me().expect("a place")), "no set holds it");
        fdtable::set(fd, Kind::Other);
        link::remove(at);
    }

    #[test]
    fn a_change_whose_thread_is_gone_is_made_by_the_next() {
        arena::me().expect("a place");
        let index = sets::create(-1).expect("a record");
        let s = sets::get(index);
        s.changer.store(gone(), Relaxed);
        assert!(begins_change(s, thread::tid()));
        assert_eq!(s.changer.load(Relaxed), thread::tid());
        s.changer.store(gone(), Relaxed);
        saw_wait(index);
        assert!(is_seen(s) && s.changer.load(Relaxed) == 0);
        s.refs.store(0, Release);
    }

    #[test]
    fn two_threads_that_close_a_set_at_once_leave_no_waiter() {
        for _ in 0..200 {
            let index = sets::create(-1).expect("a record");
            let (s, together) = (sets::get(index), AtomicU32::new(0));
            let life = s.life.load(Acquire);
            s.refs.store(2, Release);
            s.set_waiter(waiter::acquire().expect("a waiter"));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        together.fetch_add(1, AcqRel);
                        while together.load(Acquire) < 2 {
                            core::hint::spin_loop();
                        }
                        closed(index, -2);
                    });
                }
            });
            let left = s.waiter();
            assert!(left.is_none() || s.life.load(Acquire) != life, "it is never given back");
        }
    }

    #[test]
    fn one_thread_makes_the_change() {
        let index = sets::create(-1).expect("a record");
        let s = sets::get(index);
        s.changer.store(process::pid(), Relaxed); // the process's first thread lives as long as the process
        assert!(!begins_change(s, u32::MAX / 2));
        s.refs.store(0, Release);
    }

    #[test]
    fn a_forked_child_has_none_of_its_parents_threads() {
        let index = sets::create(-1).expect("a record");
        let s = sets::get(index);
        s.natives.store(2, Relaxed);
        s.changer.store(process::pid(), Relaxed);
        s.reset_in_child();
        s.end_native(); // of a wait whose handler has forked
        assert_eq!((s.natives.load(Relaxed), s.changer.load(Relaxed)), (0, 0));
        s.refs.store(0, Release);
    }
}
