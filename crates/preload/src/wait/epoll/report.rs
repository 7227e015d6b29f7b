//! One look at a set's list and at the kernel's events, under the set's lock. Writes events to the program's buffer.

use super::giveback::{hand_back, put};
use super::mask::{watch_anew, watched};
use super::tag::{self, Source};
use super::{ET, EXCLUSIVE, ONESHOT, kernel_ctl};
use crate::record::{Conn, flag};
use crate::stream::{due, parked};
use crate::wait::readiness::{self, ARRIVALS, ERR, HUP, IN_ANY, OUT, OUT_ANY};
use crate::wait::sets::{Inner, Reg, Regs, Set, reg};
use crate::{arena, user};
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_MOD, epoll_event};
use sidestep_conn::{Course, Phase};
use sidestep_ready::{self as ready, Asked, Entry, Looked, Node, Nodes, Wait};
use sidestep_sys::{arch, clock, tcp};

/// All connections of a set share one doorbell.
const GROUP: u32 = 0;

/// Result of a look.
pub(super) struct Reported {
    /// Number of events written since the beginning of the wait.
    pub n: usize,
    /// An event could not be written: the program's memory is bad.
    pub failed: bool,
}

/// State of a look, while the lock is held.
struct Report<'a> {
    set: &'a Set,
    regs: Regs,
    top: i32,
    entries: &'a [epoll_event],
    out: &'a mut [epoll_event],
    n: usize,
    failed: bool,
    /// Some registrations are skipped, since this wait has reported them already.
    later: bool,
}

/// Reports the events that come before any event of the kernel's.
pub(super) fn begin(s: &Set, inner: &mut Inner, out: &mut [epoll_event]) -> (Wait, Reported) {
    let room = out.len();
    let mut report = Report::new(s, inner, &[], out, 0);
    let wait = inner.ready.begin(&mut report, room);
    (wait, report.done())
}

/// Reports the kernel's events, if it was asked, and listed registrations. The first one is the `n`-th event of the wait.
pub(super) fn merge(
    s: &Set,
    inner: &mut Inner,
    wait: &Wait,
    (entries, asked): (&[epoll_event], Option<Asked>),
    out: &mut [epoll_event],
    n: usize,
) -> Reported {
    let room = out.len() - n;
    let mut report = Report::new(s, inner, entries, out, n);
    inner.ready.merge(&mut report, wait, asked, room);
    let later = report.later;
    let done = report.done();
    if later {
        list_fresh(inner);
    }
    done
}

/// Lists the registrations that were taken over after the kernel answered.
#[cold]
fn list_fresh(inner: &mut Inner) {
    for fd in 0..inner.top {
        if inner.reg(fd).is_some_and(|r| r.is_managed() && r.state & reg::FRESH != 0) {
            inner.hear_edge(fd);
        }
    }
}

impl<'a> Report<'a> {
    fn new(
        set: &'a Set,
        inner: &Inner,
        entries: &'a [epoll_event],
        out: &'a mut [epoll_event],
        n: usize,
    ) -> Report<'a> {
        Report { set, regs: inner.regs, top: inner.top, entries, out, n, failed: false, later: false }
    }

    fn done(self) -> Reported {
        Reported { n: self.n, failed: self.failed }
    }

    fn tell(&mut self, event: epoll_event) -> bool {
        let Some(place) = self.out.get_mut(self.n) else { return false };
        // SAFETY: the program's own place for events.
        self.failed = unsafe { user::write(place, event) }.is_err();
        self.n += usize::from(!self.failed);
        !self.failed
    }

    /// Whether the kernel's answer has the same event: the registration was taken over after the answer.
    fn is_told_by_kernel(&self, r: &Reg) -> bool {
        r.state & reg::FRESH != 0 && self.entries.iter().any(|e| e.u64 == r.data)
    }
}

/// What to report for a registration.
pub(super) struct Look {
    pub found: u32,
    pub is_to_be_told: bool,
    tail: u64,
}

/// Looks at an upgraded connection on behalf of one registration.
pub(super) fn poll_registration(r: &Reg, c: &Conn, fd: i32) -> Look {
    let tail = c.rx_half().tail();
    if c.seen_tail.load(Relaxed) != tail {
        c.seen_tail.store(tail, Relaxed);
    }
    let found = readiness::events(c, fd, r.events & !(ET | ONESHOT | EXCLUSIVE));
    if found & OUT_ANY != 0 && c.has(flag::TX_BLOCKED) {
        // The kernel carries, and takes bytes again. Other registrations that wait for this were listed together with this one.
        c.lower(flag::TX_BLOCKED);
        c.spaces.fetch_add(1, Relaxed);
    }
    let is_ready = found & (r.events | ERR | HUP) != 0;
    Look { found, is_to_be_told: is_ready && (r.events & ET == 0 || is_edge(r, c, tail)), tail }
}

/// Whether an edge-triggered registration has news. `tail`: of the ring, loaded before the connection was looked at.
fn is_edge(r: &Reg, c: &Conn, tail: u64) -> bool {
    r.state & reg::EDGE != 0
        || r.events & ARRIVALS != 0 && r.tail != tail
        || r.events & OUT_ANY != 0 && r.spaces != c.spaces.load(Relaxed)
        || c.phase.is(Phase::Broken)
}

impl Nodes for Report<'_> {
    #[inline]
    fn node(&mut self, number: u32) -> Option<&mut Node> {
        self.regs.node(number)
    }
}

impl ready::Set for Report<'_> {
    fn entry(&mut self, at: usize) -> Entry {
        let Some(event) = self.entries.get(at) else { return Entry::Nothing };
        match tag::source(event.u64) {
            Source::Program => {
                let data = event.u64;
                Entry::Native { data, is_level: is_level(self.set, &mut self.regs, data) }
            }
            Source::Doorbell => Entry::Bell(GROUP),
            Source::Wake => Entry::Nothing,
            Source::Managed(fd) => {
                let is_first = self.regs.get(fd).is_some_and(|r| r.state & reg::BY_KERNEL != 0);
                Entry::Ours { number: fd as u32, is_first }
            }
        }
    }

    fn poll(&mut self, number: u32) -> Looked {
        let fd = number as i32;
        let Some(r) = self.regs.get(fd).filter(|r| r.is_awaited()).map(|r| *r) else { return Looked::Nothing };
        if self.is_told_by_kernel(&r) {
            self.later = true;
            return Looked::Nothing;
        }
        let c = arena::conn(r.conn);
        if !c.is_attached() {
            hand_back(self.set, &mut self.regs, fd); // another process of the family has brought the connection back to the kernel
            return Looked::Nothing;
        }
        let Look { found, is_to_be_told, tail } = poll_registration(&r, c, fd);
        expect_space(self.set, &r, c, fd, found);
        if is_to_be_told && !self.tell(epoll_event { events: found, u64: r.data }) {
            return Looked::Unreported;
        }
        if let Some(r) = self.regs.get(fd) {
            (r.tail, r.spaces) = (tail, c.spaces.load(Relaxed));
            // The edge of what was not found is yet to be told: the stack may have parked the socket for a moment.
            let is_told = is_to_be_told && (found & IN_ANY != 0 || !parked::is_parked(c));
            r.state &= !(reg::FRESH | reg::BY_KERNEL | if is_told { reg::EDGE } else { 0 });
            if is_to_be_told && r.events & ONESHOT != 0 {
                r.state |= reg::DISARMED;
                // ERR and HUP are reported with any mask. The kernel has reported them, and a changed mask would make it report
                // them again.
                if found & (ERR | HUP) == 0 {
                    watch_anew(self.set, &mut self.regs, fd);
                }
            }
        }
        if is_to_be_told { Looked::Reported { again: r.events & (ET | ONESHOT) == 0 } } else { Looked::Nothing }
    }

    fn hand_over(&mut self, at: usize) -> bool {
        let Some(event) = self.entries.get(at).copied() else { return true };
        let told = self.tell(event);
        if !told {
            let is_told = |data| data == event.u64;
            (0..self.top).for_each(|fd| arm_again(self.set, &mut self.regs, fd, is_told));
        }
        told
    }

    fn arrived(&mut self, at: usize, news: u64) -> Option<u64> {
        let now = arch::ticks();
        if now.saturating_sub(news) < clock::ticks_of_us(2 * CLOSE_US) {
            return None;
        }
        let fd = registered(&mut self.regs, self.entries.get(at)?.u64, Reg::is_native)?;
        let arrived = now.saturating_sub(clock::ticks_of_us(1000 * tcp::since_last_data_ms(fd)?));
        (arrived.abs_diff(news) > clock::ticks_of_us(CLOSE_US)).then_some(arrived)
    }
}

/// Arrivals closer than this, in microseconds, cannot be ordered by the kernel's clock.
const CLOSE_US: u64 = 8000;
/// Most registrations that are searched for the data of an event.
const SEARCHED: i32 = 4096;

/// The descriptor whose registration has this data and passes the test. Many programs put the descriptor into the data.
#[cold]
pub(super) fn registered(regs: &mut Regs, data: u64, test: impl Fn(&Reg) -> bool) -> Option<i32> {
    let mut is_it = |fd: &i32| regs.get(*fd).is_some_and(|r| r.data == data && test(r));
    Some(data as u32 as i32).filter(&mut is_it).or_else(|| (0..SEARCHED).find(is_it))
}

/// Whether the kernel reports an event of the program's for as long as it holds. The registration is found if its data is the
/// descriptor, as in many programs. Otherwise a wrong answer affects only the order of events.
fn is_level(s: &Set, regs: &mut Regs, data: u64) -> bool {
    if !s.has_edge.load(Relaxed) {
        return true;
    }
    if !s.has_level.load(Relaxed) {
        return false;
    }
    regs.get(data as u32 as i32)
        .filter(|r| r.is_native() && r.data == data)
        .is_some_and(|r| r.events & (ET | ONESHOT) == 0)
}

/// The kernel has reported an event that the program did not get, and would not report it again: makes the kernel repeat it.
/// `is_told`: whether an event with this data was reported.
#[cold]
pub(super) fn arm_again(s: &Set, regs: &mut Regs, fd: i32, is_told: impl Fn(u64) -> bool) {
    if let Some(r) = regs.get(fd).filter(|r| r.is_native() && r.events & (ET | ONESHOT) != 0 && is_told(r.data)) {
        let _ = put(s, fd, r.events, (r.events, r.data));
    }
}

/// After a look that has `found` no space for a registration that waits for some, or unsent bytes: somebody will report the space.
pub(super) fn expect_space(s: &Set, r: &Reg, c: &Conn, fd: i32, found: u32) {
    if c.course.is(Course::Unsent) || r.events & OUT_ANY != 0 && found & OUT_ANY == 0 {
        if readiness::is_kernels(c) { ask_for_out(s, r, fd) } else { due::expect_space() }
    }
}

/// The kernel carries, and its buffers are full: makes the kernel report when they are not.
#[cold]
fn ask_for_out(s: &Set, r: &Reg, fd: i32) {
    if kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_MOD, fd, watched(s, r.events) | OUT, tag::of(fd)).is_err() {
        due::expect_space();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use crate::stream::stretch::tests::connected;
    use crate::stream::unrung::tests::{SLOT, attached, index_of, silent_link};
    use crate::wait::readiness::IN;
    use crate::wait::sets;
    use sidestep_ring::slot;
    use std::io::Write as _;
    use std::os::fd::AsRawFd;

    /// Bytes that come by kernel while the stack is about to take the connection: it finds them, and does not take it.
    #[test]
    fn an_edge_outlasts_a_socket_that_is_parked_for_a_moment() {
        let at = silent_link(0x7e6e);
        let (c, (near, mut far)) = (attached(at, SLOT), connected());
        let (fd, s) = (near.as_raw_fd(), sets::get(sets::create(-1).expect("a record")));
        far.write_all(&[7; 100]).expect("bytes");
        c.raise(flag::STACK);
        let look = |parked, is_edge| {
            slot::set_parked(c.words(), parked);
            let mut out = [epoll_event { events: 0, u64: 0 }];
            let told = s.with(|inner| {
                if is_edge {
                    inner.hear_edge(fd)
                } else {
                    inner.hear_since(fd, arch::ticks())
                };
                let wait = inner.ready.asked_first();
                merge(s, inner, &wait, (&[], Some(Asked::default())), &mut out, 0).n
            });
            (told, out[0].events)
        };
        s.with(|inner| {
            let r = inner.register(fd, (IN | ET, 7), reg::PRESENT | reg::MANAGED).expect("a registration");
            r.conn = index_of(c);
        });
        assert_eq!(look(1, true), (Some(0), 0), "the kernel's answer does not count");
        assert_eq!(look(2, false), (Some(1), IN), "the stack rings once it has left the socket alone");
        assert_eq!(look(2, false), (Some(0), 0), "no news");
        s.refs.store(0, Release);
        link::remove(at);
    }
}
