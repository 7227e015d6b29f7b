//! epoll_ctl(2): changes of what the program is interested in.

use super::giveback::{drop_doorbell, drop_set_aside, give_way, hand_back, holds, leave_to_kernel, note_native};
use super::mask::watch_anew;
use super::seen::{is_seen, reconsider, removed, share};
use super::takeover::take_over;
use super::{ET, EXCLUSIVE, ONESHOT, kick, nest, shared, tag};
use crate::fdtable::{self, Kind};
use crate::wait::readiness::{ERR, HUP, IN, OUT};
use crate::wait::sets::{self, Reg, Set, reg};
use crate::{arena, errno, user};
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use sidestep_abi::Reason;
use sidestep_sys::{Errno, Result};

/// epoll_ctl(2). `native`: the program's own call.
pub fn ctl(index: u32, op: i32, fd: i32, event: *const epoll_event, native: impl Fn() -> i32) -> i32 {
    let s = sets::get(index);
    let wanted = match op {
        EPOLL_CTL_DEL => None, // the kernel does not look at it
        _ => match user::read(event) {
            Ok(e) => Some((e.events, e.u64)),
            Err(_) => return native(), // the kernel refuses the pointer
        },
    };
    if op != EPOLL_CTL_DEL {
        shared::uses(index);
    }
    if wanted.is_some_and(|(_, data)| tag::is_ours(data)) && !s.is_kernels.load(Relaxed) {
        // The program's data looks like a tag of ours, so its events could not be told from ours.
        errno::keep(|| leave_to_kernel(index, Reason::Foreign));
    }
    if let Some(result) = change_managed(s, op, fd, wanted) {
        return errno::give(result) as i32;
    }
    if let Kind::Set(inner) = fdtable::get(fd) {
        nest(inner);
    }
    if let Some(result) = errno::keep(|| register(s, op, fd, wanted)) {
        return errno::give(result) as i32;
    }
    let mut result = native();
    if result != 0 && op == EPOLL_CTL_ADD && errno::keep(|| make_room(index, fd)) {
        result = native();
    }
    if result == 0 {
        record(s, op, fd, wanted);
        if op == EPOLL_CTL_DEL {
            errno::keep(|| removed(s, fd));
        }
        if let (Kind::Conn(conn), Some((events, _))) = (fdtable::get(fd), wanted)
            && arena::conn(conn).is_attached()
        {
            errno::keep(|| share(s, conn, fd, events));
        }
    }
    result
}

/// The kernel has refused to nest a set: perhaps only our doorbell makes the nesting too deep. Gives up the doorbells, and
/// moves the connections of those sets to the kernel. False: there were none, or the sets would form a circle.
#[cold]
fn make_room(outer: u32, fd: i32) -> bool {
    let Kind::Set(inner) = fdtable::get(fd) else { return false };
    matches!(errno::get(), libc::ELOOP | libc::EINVAL) && !holds(inner, outer, NESTS) && give_way(inner, NESTS)
}

/// Deepest nesting of sets that the kernel permits.
const NESTS: u32 = 5;

/// Registers an attached connection that is not managed yet, and manages it from the beginning. Otherwise one waiting thread
/// could get an event from the kernel, and another thread the same event from us. None: this cannot be managed.
fn register(s: &Set, op: i32, fd: i32, wanted: Option<(u32, u64)>) -> Option<Result<usize>> {
    let (Kind::Conn(conn), Some((events, data))) = (fdtable::get(fd), wanted) else { return None };
    let ours = matches!(op, EPOLL_CTL_ADD | EPOLL_CTL_MOD) && arena::conn(conn).is_attached();
    if !ours
        || arena::is_inherited(arena::conn(conn))
        || events & EXCLUSIVE != 0
        || s.is_kernels.load(Relaxed)
        || !is_seen(s)
    {
        return None;
    }
    take_over(s, conn, op, fd, (events, data)).inspect(|_| reconsider(fd))
}

/// Changes a managed registration without a system call: the kernel's mask never changes. A registration that the program
/// removes is only *set aside*, for programs that put it back at once. None: the registration is not managed, or not any longer,
/// so the kernel makes the change.
fn change_managed(s: &Set, op: i32, fd: i32, wanted: Option<(u32, u64)>) -> Option<Result<usize>> {
    let (mut is_first, mut is_less) = (false, false);
    let result = s.with(|inner| {
        let r = inner.reg(fd).filter(|r| r.is_managed())?;
        if !r.is_present() && !arena::conn(r.conn).is_attached() {
            hand_back(s, &mut inner.regs, fd); // for the kernel it is still in the set, where the program adds it anew
            return None;
        }
        is_less = asks_for_less(r, op, wanted);
        let result = change(r, op, wanted)?;
        if result.is_ok() {
            watch_anew(s, &mut inner.regs, fd);
            // The new mask of a nested set asks for no space, although an earlier look may have asked the kernel for some.
            is_first = (!is_less || s.nested.load(Relaxed)) && inner.hear_edge(fd);
        }
        Some(result)
    });
    if !is_less || s.nested.load(Relaxed) {
        kick(s, is_first);
    }
    if op == EPOLL_CTL_DEL && s.nested.load(Relaxed) {
        drop_set_aside(s, fd); // in a nested set its kernel events would make the set readable
    }
    result.flatten()
}

/// Whether a level-triggered registration is narrowed to a subset of its events: every such event that holds is listed already.
fn asks_for_less(r: &Reg, op: i32, wanted: Option<(u32, u64)>) -> bool {
    let is_less = |events: u32| (r.events | events) & (ET | ONESHOT | EXCLUSIVE) == 0 && events & !r.events == 0;
    op == EPOLL_CTL_MOD && r.is_awaited() && wanted.is_some_and(|(events, _)| is_less(events))
}

/// Events that are permitted together with EPOLLEXCLUSIVE (EPOLLEXCLUSIVE_OK_BITS).
const WITH_EXCLUSIVE: u32 = EXCLUSIVE | ET | IN | OUT | ERR | HUP | libc::EPOLLWAKEUP as u32;

fn change(r: &mut Reg, op: i32, wanted: Option<(u32, u64)>) -> Option<Result<usize>> {
    if !arena::conn(r.conn).is_attached() {
        return None; // the connection is native again, and the kernel watches it
    }
    let present = r.is_present();
    if wanted
        .is_some_and(|(events, _)| events & EXCLUSIVE != 0 && (op != EPOLL_CTL_ADD || events & !WITH_EXCLUSIVE != 0))
    {
        return Some(Err(Errno(libc::EINVAL))); // epoll_ctl(2)
    }
    match (op, wanted) {
        (EPOLL_CTL_ADD, _) if present => return Some(Err(Errno(libc::EEXIST))),
        (EPOLL_CTL_MOD | EPOLL_CTL_DEL, _) if !present => return Some(Err(Errno(libc::ENOENT))),
        (EPOLL_CTL_DEL, _) => {
            r.state &= !(reg::PRESENT | reg::DISARMED);
            return Some(Ok(0));
        }
        (EPOLL_CTL_MOD, Some(_)) if r.events & EXCLUSIVE != 0 => {
            return Some(Err(Errno(libc::EINVAL)));
        }
        (EPOLL_CTL_ADD | EPOLL_CTL_MOD, Some((events, data))) => {
            r.events = events;
            r.data = data;
            r.state = r.state & !reg::DISARMED | reg::PRESENT;
        }
        _ => return None,
    }
    Some(Ok(0))
}

fn record(s: &Set, op: i32, fd: i32, wanted: Option<(u32, u64)>) {
    s.with(|inner| {
        let was_managed = inner.reg(fd).is_some_and(|r| r.is_managed());
        if was_managed && let Kind::Conn(conn) = fdtable::get(fd) {
            drop_doorbell(s, arena::conn(conn));
        }
        match (op, wanted) {
            (EPOLL_CTL_DEL, _) => inner.clear(fd),
            (_, Some((events, data))) => {
                note_native(s, events);
                inner.register(fd, (events, data), reg::PRESENT);
            }
            _ => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::kernel_ctl;
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// A relative that uses the connection, too, brings it back to the kernel, and does not know of this process's registrations.
    #[test]
    fn what_was_removed_is_added_again_after_a_relative_has_brought_the_connection_back() {
        let conn = arena::alloc().expect("a record");
        arena::conn(conn).reset(0, arena::bit());
        let (mine, _theirs) = UnixStream::pair().expect("two sockets");
        let (fd, epfd) = (mine.as_raw_fd(), sidestep_sys::fd::doorbell().expect("a set"));
        let index = sets::create(epfd).expect("a record");
        let s = sets::get(index);
        kernel_ctl(epfd, EPOLL_CTL_ADD, fd, IN, tag::of(fd)).expect("a registration");
        s.with(|inner| {
            if let Some(r) = inner.register(fd, (IN, 7), reg::MANAGED) {
                r.conn = conn;
            }
        });
        let wanted = epoll_event { events: IN, u64: 7 };
        let native = || kernel_ctl(epfd, EPOLL_CTL_ADD, fd, IN, 7).map_or(-1, |()| 0);
        assert_eq!(ctl(index, EPOLL_CTL_ADD, fd, &raw const wanted, native), 0, "EEXIST");
        assert!(s.has(fd, Reg::is_native));
        s.refs.store(0, Release);
        sidestep_sys::fd::close(epfd);
        arena::let_go(conn);
    }
}
