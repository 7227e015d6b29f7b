//! The process is about to become another program, or to end.

use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::{arena, attach, drain, errno, handlers, life::numbers, member, report, settings, thread, wait};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_abi::Reason;
use sidestep_sys::{fd as fdsys, tcp};

/// Before exec(): connections that the new program will inherit go to the kernel, with every byte.
pub fn prepare() {
    if !settings::active() {
        return;
    }
    if thread::in_vfork() {
        surrender_inherited();
    } else {
        surrender(drain::hand_over);
        errno::keep(|| wait::epoll::shared::before_exec(survives));
        errno::keep(report::write_some);
    }
}

/// Whether the number is open here, and will be after exec().
fn survives(fd: i32) -> bool {
    fdsys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags as i32 & libc::FD_CLOEXEC == 0)
}

/// Connections that another program is about to inherit go to the kernel. Ours goes on.
pub fn surrender_inherited() {
    surrender(drain::to_kernel);
}

fn surrender(by: fn(&'static Conn, i32, Reason)) {
    thread::parts().faults.restore();
    errno::keep(|| {
        let mut any = false;
        fdtable::for_each(|fd, kind| {
            let Kind::Conn(index) = kind else { return };
            let c = arena::conn(index);
            any |= c.is_attached();
            // One that is on the kernel stays there: the other program may use it at any time.
            if survives(fd) {
                by(c, fd, Reason::Exec);
            }
        });
        if any && thread::in_vfork() {
            surrender_copies();
        }
    });
}

/// Every connection of this process, present and future, goes to the kernel, which the program uses past us from here on.
pub fn surrender_all(reason: Reason) {
    attach::stop(reason);
    surrender_each(drain::hand_over, reason);
}

/// Every connection that there is now goes to the kernel.
pub fn surrender_present(reason: Reason) {
    surrender_each(drain::to_kernel, reason);
}

fn surrender_each(by: fn(&'static Conn, i32, Reason), reason: Reason) {
    errno::keep(|| {
        fdtable::for_each(|fd, kind| {
            if let Kind::Conn(index) = kind {
                by(arena::conn(index), fd, reason);
            }
        });
    });
}

/// Before a seccomp filter: what it allows is the program's choice, and may not be enough for us. All connections go
/// back to the kernel, and the program is alone from here on.
pub fn confine() {
    if !settings::active() || thread::in_vfork() {
        return;
    }
    surrender_all(Reason::Sandbox);
    errno::keep(|| {
        fdtable::for_each(|fd, kind| {
            if let Kind::Conn(index) = kind {
                numbers::unfollow_native(index, fd);
            }
        });
        report::write();
        member::quit();
        handlers::retire();
        settings::fall_silent();
    });
}

/// A vfork child has copied connections to other numbers without our table knowing.
fn surrender_copies() {
    let table = sidestep_sys::process::descriptor_table().unwrap_or(fdsys::LOWEST);
    for fd in (0..table).filter(|fd| survives(*fd) && !matches!(fdtable::get(*fd), Kind::Conn(_))) {
        let Ok(cookie) = tcp::cookie(fd) else { continue };
        fdtable::for_each(|other, kind| {
            if let Kind::Conn(index) = kind
                && arena::conn(index).is_attached()
                && arena::local(index).fd.load(Relaxed) == other as u32
                && tcp::cookie(other) == Ok(cookie)
            {
                drain::to_kernel(arena::conn(index), other, Reason::Exec);
            }
        });
    }
}

/// The process ends: says what it has to say, and ends its connections as close() would.
pub fn leave() {
    static LEFT: AtomicU32 = AtomicU32::new(u32::MAX);
    // Once in each process: exit() ends in _exit().
    if settings::active() && LEFT.swap(crate::generation::get(), AcqRel) != crate::generation::get() {
        errno::keep(|| {
            report::write();
            numbers::end_all();
        });
    }
}
