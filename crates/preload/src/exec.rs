//! The process executes another program, or ends.

use crate::drain::Batch;
use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::{
    arena, attach, errno, generation, handlers, life::numbers, lineage, member, report, settings, thread, wait,
};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_abi::Reason;
use sidestep_sys::{fd as fdsys, tcp};

/// How long the end of a process, or of its program, waits until the broker has let go of the sockets that it was offered: their peers would
/// see the end late.
const LENT_NS: u64 = 100_000_000;

/// Before exec(): moves the connections that the new program will inherit to the kernel, with every byte.
pub fn prepare() {
    if !settings::active() {
        return;
    }
    if !lineage::is_own() {
        return drain_inherited_to_kernel(); // the rest is another process's
    }
    if numbers::is_any_lent() {
        errno::keep(|| member::await_broker(LENT_NS));
    }
    let batch = Batch::begin();
    each_inherited(&batch, Batch::hand_over);
    errno::keep(|| {
        wait::epoll::shared::hand_over_before_exec(&batch, survives);
        wait::epoll::shared::before_exec(survives);
        let_closed_go();
        arena::leave_place();
    });
    errno::keep(report::write_some);
}

/// Leaves the connections that exec() closes to their other holders: this process lives on, and would count as a holder.
fn let_closed_go() {
    let mut alive = 0;
    fdtable::for_each(|fd, kind| {
        if let Kind::Conn(index) = kind
            && arena::local(index).refs.load(Relaxed) == 1
            && !survives(fd)
        {
            arena::let_go_for_exec(index, &mut alive);
        }
    });
}

/// After a failed exec(): the process goes on with its connections. One that the other holders have ended since is the kernel's.
pub fn failed() {
    if !settings::active() || !lineage::is_own() {
        return;
    }
    errno::keep(|| {
        fdtable::for_each(|fd, kind| {
            if let Kind::Conn(index) = kind
                && !arena::rejoin(index)
            {
                wait::epoll::return_to_kernel(fd);
                fdtable::set(fd, Kind::Other);
            }
        });
    });
}

/// Whether the descriptor is open, and stays open after exec().
fn survives(fd: i32) -> bool {
    fdsys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags as i32 & libc::FD_CLOEXEC == 0)
}

/// Moves the connections that another program is about to inherit to the kernel. This program keeps using them.
pub fn drain_inherited_to_kernel() {
    each_inherited(&Batch::begin(), Batch::to_kernel);
}

fn each_inherited(batch: &Batch, by: fn(&Batch, &'static Conn, i32, Reason)) {
    thread::parts().faults.restore();
    errno::keep(|| {
        let mut any = false;
        fdtable::for_each(|fd, kind| {
            let Kind::Conn(index) = kind else { return };
            let c = arena::conn(index);
            any |= c.phase.phase().has_slot() || c.phase.phase().is_offered();
            // A connection on the kernel must stay there: the other program may use it at any time.
            if survives(fd) {
                by(batch, c, fd, Reason::Exec);
            }
        });
        if any && lineage::is_borrowed() {
            drain_copies_to_kernel(batch);
        }
    });
}

/// Moves every present and future connection of this process to the kernel. The program bypasses the library from now on.
pub fn drain_all_to_kernel(reason: Reason) {
    attach::stop(reason);
    drain_each_to_kernel(Batch::hand_over, reason);
}

/// Moves every present connection to the kernel.
pub fn drain_present_to_kernel(reason: Reason) {
    drain_each_to_kernel(Batch::to_kernel, reason);
}

fn drain_each_to_kernel(by: fn(&Batch, &'static Conn, i32, Reason), reason: Reason) {
    errno::keep(|| {
        let batch = Batch::begin();
        fdtable::for_each(|fd, kind| {
            if let Kind::Conn(index) = kind {
                by(&batch, arena::conn(index), fd, reason);
            }
        });
    });
}

/// Before a seccomp filter, which may forbid system calls that the library needs: moves all connections and epoll sets to the
/// kernel, and makes no call of the library's own any more.
pub fn confine() {
    if !settings::active() || lineage::is_borrowed() {
        return;
    }
    drain_all_to_kernel(Reason::Sandbox);
    errno::keep(|| {
        // First the sets: they find their registrations by the connections that are followed.
        let batch = Batch::begin();
        fdtable::for_each(|_, kind| {
            if let Kind::Set(index) = kind {
                wait::epoll::leave_in_batch(index, &batch, Reason::Sandbox);
            }
        });
        let mut is_any_left = false;
        fdtable::for_each(|fd, kind| {
            if let Kind::Conn(index) = kind {
                numbers::unfollow_native(index, fd);
                is_any_left |= fdtable::get(fd) == kind;
            }
        });
        report::write();
        member::quit();
        handlers::retire();
        settings::fall_silent();
        if !is_any_left {
            fdtable::follow_no_longer();
        }
    });
}

/// A child on our memory may have duplicated connections to descriptors that are not in our table.
fn drain_copies_to_kernel(batch: &Batch) {
    let table = sidestep_sys::process::descriptor_table().unwrap_or(fdsys::LOWEST);
    for fd in (0..table).filter(|fd| survives(*fd) && !matches!(fdtable::get(*fd), Kind::Conn(_))) {
        // Few are of TCP, and each of those is compared with every connection.
        let Some(cookie) = tcp::is_tcp(fd).then(|| tcp::cookie(fd).ok()).flatten() else { continue };
        fdtable::for_each(|other, kind| {
            if let Kind::Conn(index) = kind
                && arena::local(index).fd.load(Relaxed) == other as u32
                && tcp::cookie(other) == Ok(cookie)
            {
                batch.to_kernel(arena::conn(index), other, Reason::Exec);
            }
        });
    }
}

/// The process ends: writes the report, and ends the connections as close() would. `is_last`: no code of the program runs any more,
/// unless it is another thread's.
pub fn leave(is_last: bool) {
    static LEFT: AtomicU32 = AtomicU32::new(u32::MAX);
    // Only once in each process: exit() ends by calling _exit().
    let is_first = || LEFT.swap(generation::get(), AcqRel) != generation::get();
    if settings::active() && lineage::is_own() && is_first() {
        errno::keep(|| {
            let is_lent = numbers::is_any_lent();
            let hangs_up = is_lent && is_last && thread::is_last();
            if is_lent && !hangs_up {
                member::await_broker(LENT_NS);
            }
            report::write();
            numbers::end_all(hangs_up);
        });
    }
}
