//! epoll_ctl(2): what the program asks for.

use super::takeover::{drop_bell, manage, take_over};
use super::{EXCLUSIVE, ONESHOT, is_tag, kick, nest};
use crate::fdtable::{self, Kind};
use crate::record::flag;
use crate::wait::sets::{self, Reg, Set, reg};
use crate::{arena, errno};
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use sidestep_sys::{Errno, Result};

/// epoll_ctl(2). `native`: the program's own call.
pub fn ctl(index: u32, op: i32, fd: i32, event: *const epoll_event, native: impl FnOnce() -> i32) -> i32 {
    let s = sets::get(index);
    // SAFETY: the program vouches for the event; DEL may pass none.
    let wanted = unsafe { event.as_ref() }.map(|e| (e.events, e.u64));
    if let Some(result) = change_managed(s, op, fd, wanted) {
        return errno::give(result) as i32;
    }
    if let Kind::Set(inner) = fdtable::get(fd) {
        nest(inner);
    }
    if let Some(result) = errno::keep(|| register(s, op, fd, wanted)) {
        return errno::give(result) as i32;
    }
    let result = native();
    if result == 0 {
        record(s, op, fd, wanted);
        if let Kind::Conn(conn) = fdtable::get(fd) {
            arena::conn(conn).raise(flag::WAITED);
            // Attached by another thread just now.
            if arena::conn(conn).is_attached() && op != EPOLL_CTL_DEL {
                errno::keep(|| manage(conn, arena::conn(conn), fd, wanted.is_some_and(|(e, _)| e & ONESHOT == 0)));
            }
        }
    }
    result
}

/// Interest in an upgraded connection that is not managed yet: from the first moment on its events are ours alone, or
/// a thread that waits there could get one from the kernel and another could get the same from us. None: not such.
fn register(s: &Set, op: i32, fd: i32, wanted: Option<(u32, u64)>) -> Option<Result<usize>> {
    let (Kind::Conn(conn), Some((events, data))) = (fdtable::get(fd), wanted) else { return None };
    let ours = matches!(op, EPOLL_CTL_ADD | EPOLL_CTL_MOD) && arena::conn(conn).is_attached();
    if !ours || events & EXCLUSIVE != 0 || is_tag(data) || s.clash.load(Relaxed) {
        return None;
    }
    arena::conn(conn).raise(flag::WAITED);
    take_over(s, conn, op, fd, (events, data))
}

/// A change of interest in an upgraded connection needs no system call: the kernel's mask never changes, and a
/// connection that is taken out of the set is only *parked*, for programs that put it back at once. None: not
/// managed, or not any longer; the kernel's business.
fn change_managed(s: &Set, op: i32, fd: i32, wanted: Option<(u32, u64)>) -> Option<Result<usize>> {
    let result = s.with(|inner| {
        let r = inner.reg(fd).filter(|r| r.is_managed())?;
        let result = change(r, op, wanted)?;
        if result.is_ok() {
            inner.queue(fd);
        }
        Some(result)
    });
    kick(s);
    result.flatten()
}

fn change(r: &mut Reg, op: i32, wanted: Option<(u32, u64)>) -> Option<Result<usize>> {
    let present = r.is_present();
    match (op, wanted) {
        (EPOLL_CTL_ADD, _) if present => return Some(Err(Errno(libc::EEXIST))),
        (EPOLL_CTL_MOD | EPOLL_CTL_DEL, _) if !present => return Some(Err(Errno(libc::ENOENT))),
        (EPOLL_CTL_DEL, _) => {
            r.state &= !(reg::PRESENT | reg::DISARMED);
            return Some(Ok(0));
        }
        // epoll_ctl(2): EPOLLEXCLUSIVE is not for modifications.
        (EPOLL_CTL_MOD, Some((events, _))) if (events | r.events) & EXCLUSIVE != 0 => {
            return Some(Err(Errno(libc::EINVAL)));
        }
        (EPOLL_CTL_ADD | EPOLL_CTL_MOD, Some((events, data))) => {
            if is_tag(data) || present && arena::conn(r.conn).has(flag::KERNEL_ONLY) {
                return None; // the kernel watches it again
            }
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
            drop_bell(s, arena::conn(conn));
        }
        match (op, wanted) {
            (EPOLL_CTL_DEL, _) => inner.clear(fd),
            (_, Some((events, data))) => {
                if is_tag(data) {
                    s.clash.store(true, Relaxed);
                }
                if let Some(r) = inner.reg(fd) {
                    r.events = events;
                    r.data = data;
                    r.state = r.state & reg::QUEUED | reg::PRESENT;
                }
            }
            _ => {}
        }
    });
}
