//! From doorbells and kernel events to the list of ready registrations.

use super::kick;
use super::tag::{self, Source};
use crate::fdtable::{self, Kind};
use crate::record::{Conn, flag};
use crate::stream::{due, parked, stretch};
use crate::wait::readiness::{self, ARRIVALS, ENDS, IN, OUT, OUT_ANY, PRI};
use crate::wait::sets::{self, Inner, Reg, Set, reg};
use crate::{arena, critical, waiter};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::*;
use libc::epoll_event;
use sidestep_conn::Course;
use sidestep_sys::arch;

/// News that are listed under one lock.
const BATCH: usize = 16;

/// News on its way into a set's list, collected so that the lock is taken once for many.
struct Batch<'s> {
    set: &'s Set,
    /// Time (ticks) when the news was taken.
    now: u64,
    len: usize,
    news: [MaybeUninit<News>; BATCH],
}

#[derive(Clone, Copy)]
struct News {
    fd: i32,
    ticks: u64,
    /// Events of the kernel; 0: the news came by ring.
    says: u32,
}

impl Batch<'_> {
    fn new(set: &Set) -> Batch<'_> {
        Batch { set, now: 0, len: 0, news: [const { MaybeUninit::uninit() }; BATCH] }
    }

    fn put(&mut self, news: News) {
        if self.len == BATCH {
            let set = self.set;
            set.with(|inner| self.hand_in(inner));
            self.len = 0;
        }
        self.news[self.len].write(news);
        self.len += 1;
    }

    /// Lists all news, under the set's lock.
    fn hand_in(&self, inner: &mut Inner) {
        if self.len == 0 {
            return;
        }
        // The peer's time stamp is not trusted: it is clamped to the time since the last look.
        let earliest = inner.taken.min(self.now);
        for news in &self.news[..self.len] {
            // SAFETY: `put` has written so many.
            let News { fd, ticks, says } = unsafe { news.assume_init() };
            if says != 0
                && let Some(r) = inner.reg(fd).filter(|r| r.is_managed())
            {
                r.state |= if r.is_listed() { 0 } else { reg::BY_KERNEL };
                r.state |= if is_edge(r, says) { reg::EDGE } else { 0 };
                r.ends = says & ENDS;
            }
            inner.hear(fd, ticks.clamp(earliest, self.now));
        }
        inner.settle();
    }

    /// Takes the news that have rung for this waiter.
    fn poll(&mut self, p: u32) {
        self.now = arch::ticks();
        waiter::poll_news(p, |index| {
            stretch::serve(index);
            let ticks = arena::conn(index).rx_half().news_at();
            for_each_number(index, |fd| self.put(News { fd, ticks, says: 0 }));
        });
    }
}

/// Whether an event of the kernel is an edge for an edge-triggered registration. The kernel wakes by what has happened.
/// Arriving bytes, urgent or not, wake registrations for [`ARRIVALS`]; space wakes those for writing; the end of a direction or
/// of the connection wakes all.
fn is_edge(r: &Reg, says: u32) -> bool {
    says & ENDS & !r.ends != 0
        || says & (IN | PRI) != 0 && r.events & ARRIVALS != 0
        || says & OUT != 0 && r.events & OUT_ANY != 0
}

/// Lists the connections that have rung for this waiter.
pub(super) fn list_rung(s: &Set, p: u32) {
    if waiter::has_news(p) {
        heard(s, p, |_| ());
    }
}

/// As [`list_rung`], and runs `work` under the same lock. No handler may jump out in between: news that were taken would be
/// lost.
#[inline]
pub(super) fn heard<T>(s: &Set, p: u32, work: impl FnOnce(&mut Inner) -> T) -> Option<T> {
    if !waiter::has_news(p) {
        return s.with(work);
    }
    critical::section(|| {
        let mut batch = Batch::new(s);
        batch.poll(p);
        s.with(|inner| {
            batch.hand_in(inner);
            inner.taken = inner.taken.max(batch.now);
            work(inner)
        })
    })
}

/// Calls `each` for every descriptor of a connection: any of them may be registered.
pub fn for_each_number(index: u32, mut each: impl FnMut(i32)) {
    let local = arena::local(index);
    if local.refs.load(Relaxed) <= 1 {
        return each(local.fd.load(Relaxed) as i32);
    }
    fdtable::for_each(|fd, kind| {
        if kind == Kind::Conn(index) {
            each(fd);
        }
    });
}

/// Lists the connections of these kernel events. Returns how many events are the program's own.
pub(super) fn hear_kernel(s: &Set, entries: &[epoll_event]) -> usize {
    let natives = entries.iter().filter(|e| !tag::is_ours(e.u64)).count();
    if natives == entries.len() {
        return natives;
    }
    let mut batch = Batch::new(s);
    batch.now = arch::ticks();
    for event in entries {
        let Source::Managed(fd) = tag::source(event.u64) else { continue };
        if let Kind::Conn(index) = fdtable::get(fd) {
            if readiness::is_hint(event.events) {
                arena::conn(index).raise(flag::HINT);
            }
            stretch::serve(index);
        }
        batch.put(News { fd, ticks: batch.now, says: event.events });
    }
    s.with(|inner| batch.hand_in(inner));
    natives
}

/// Lists every writer that waits for space, in whatever sets it is, if there may be one. Unsent bytes are sent here: no look sends
/// those of a connection whose one-shot registration has fired, or that the program has removed from its sets.
pub(super) fn queue_writers() {
    if !due::claim() {
        return;
    }
    fdtable::for_each(|fd, kind| {
        if let Kind::Conn(index) = kind
            && arena::conn(index).has(flag::TX_BLOCKED)
        {
            send_unsent(arena::conn(index), fd);
            for (_, s) in sets::all().filter(|(_, s)| s.has(fd, Reg::is_awaited)) {
                s.with(|inner| {
                    inner.hear(fd, arch::ticks());
                    inner.settle();
                });
                kick(s, false);
            }
        }
    });
}

/// A stack that cannot give a connection back for want of a way to its peer is waited for by calls on that connection, and not by every
/// wait of the process.
fn send_unsent(c: &'static Conn, fd: i32) {
    if c.is_attached() && c.course.is(Course::Unsent) {
        match parked::is_parked(c) {
            true => due::expect_space(),
            false => stretch::attend(c, fd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use crate::stream::stretch::tests::{connected, fill};
    use crate::stream::unrung::tests::{AT, SLOT, attached, index_of, silent_link, with_unread_there};
    use sidestep_ring::slot;
    use std::io::Read as _;
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};

    #[test]
    fn a_stack_that_cannot_give_a_connection_back_delays_no_other_wait() {
        let at = silent_link(0x7e6a);
        let (c, (mut near, _far)) = (attached(at, SLOT), connected());
        fill(&mut near);
        let mut peer = with_unread_there(c, 100);
        assert_eq!(peer.leave_ring(c.tx_half()), Ok(()));
        stretch::attend(c, near.as_raw_fd());
        assert!(c.course.is(Course::Unsent));
        c.raise(flag::STACK);
        slot::set_parked(c.words(), 1);
        let began = Instant::now();
        send_unsent(c, near.as_raw_fd());
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert!(due::expects_space(), "it is looked at again");
        link::remove(at);
    }

    #[test]
    fn unsent_bytes_of_a_connection_that_no_set_looks_at_leave_once_the_kernel_takes_them() {
        let at = silent_link(0x7e5f);
        let (c, (mut near, mut far)) = (attached(at, SLOT), connected());
        let (index, fd) = (index_of(c), near.as_raw_fd());
        fill(&mut near);
        let mut peer = with_unread_there(c, 100);
        assert_eq!(peer.leave_ring(c.tx_half()), Ok(()));
        stretch::attend(c, fd);
        assert!(c.course.is(Course::Unsent) && c.has(flag::TX_BLOCKED), "the kernel has no room");
        arena::local(index).fd.store(fd as u32, Relaxed);
        assert!(fdtable::set(fd, Kind::Conn(index)));
        far.set_nonblocking(true).expect("O_NONBLOCK");
        let (mut piece, began) = ([0; 65536], Instant::now());
        while c.course.is(Course::Unsent) && began.elapsed() < Duration::from_secs(10) {
            while far.read(&mut piece).is_ok_and(|n| n > 0) {}
            due::expect_space();
            queue_writers();
        }
        fdtable::set(fd, Kind::Other);
        assert!(c.course.is(Course::Kernel), "nobody else sends them");
        assert_eq!(c.with_tx(|end| end.tx.kernel()).ok(), Some(AT + 100));
        link::remove(at);
    }
}
