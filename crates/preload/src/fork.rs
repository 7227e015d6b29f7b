//! fork(): the child also holds every connection, but membership, doorbells and counters are the parent's. A connection that
//! the child touches goes back to the kernel for both.

use crate::{
    arena, blocked, counters, debts, errno, fdtable, generation, handlers, host, life::numbers, member, settings,
    stream::late, thread, uring, wait, waiter,
};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use fdtable::Kind;
use sidestep_sys::{process, tcp};

/// The process to which the state in this module belongs.
static PID: AtomicU32 = AtomicU32::new(0);

/// Checked now and then: a child made by a system call that the library has not seen finds out that it is a child.
#[cold]
pub fn notice() {
    if !thread::in_vfork() && PID.load(Relaxed) != process::pid() {
        in_child();
    }
}

/// Before the fork: registers the child as a holder of everything that this process holds.
pub fn prepare() {
    if !settings::active() {
        return;
    }
    errno::keep(|| {
        notice(); // a child made out of sight would give away its parent's bits
        wait::epoll::shared::before_fork();
        let place = arena::reserve_for_child();
        if let Some(p) = place {
            wait::epoll::shared::hold(p);
            for_each_conn(|_, index| arena::share_with_child(index, p));
        }
        thread::set_reserved(place);
    });
}

fn for_each_conn(mut each: impl FnMut(i32, u32)) {
    fdtable::for_each(|fd, kind| {
        if let Kind::Conn(index) = kind {
            each(fd, index);
        }
    });
}

/// In the parent, if no child was made.
pub fn failed() {
    if !settings::active() {
        return;
    }
    errno::keep(|| arena::cancel_child(thread::claim_reserved().flatten()));
}

/// In the parent, if a child was made. A child that is made later, out of our sight, must not take the place of this one.
pub fn done() {
    thread::claim_reserved();
}

pub fn in_child() {
    if !settings::active() {
        return;
    }
    errno::keep(|| {
        PID.store(process::pid(), Relaxed);
        thread::reset_in_child();
        debts::reset_in_child();
        generation::next();
        let reserved = thread::claim_reserved();
        let place = reserved.flatten();
        arena::become_child(place);
        if reserved.is_some() {
            // Other threads of the parent may have begun a connection since `prepare`, or may have been closing one.
            let bit = place.map_or(0, |p| 1u64 << p);
            fdtable::reset_in_child(|index| arena::conn(index).holders.bits() & bit != 0);
        } else {
            for_each_conn(|fd, index| {
                if !arena::hold_late(index) {
                    fdtable::set(fd, Kind::Other);
                }
            });
        }
        if place.is_none() {
            wait::epoll::shared::hold_late();
        }
        blocked::reset_in_child();
        fdtable::for_each(|fd, kind| match kind {
            Kind::Conn(index) => blocked::reset_connection_in_child(index),
            // The program has closed this connection. Only a call of a thread that does not exist here keeps it
            // (`life::number`).
            Kind::Own if tcp::is_tcp(fd) => fdtable::drop_own(fd),
            _ => {}
        });
        numbers::reset_orphans_in_child();
        counters::reset_in_child();
        wait::sets::unlock_all();
        handlers::unlock();
        late::unlock();
        uring::table::unlock_all();
        member::reset_in_child();
        waiter::reset_in_child();
    });
}

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Makes libc call us around every fork that it knows of, including those of daemon(3) and forkpty(3).
pub fn register() {
    PID.store(process::pid(), Relaxed);
    extern "C" fn before() {
        prepare();
    }
    extern "C" fn child() {
        in_child();
    }
    REGISTERED.store(host::register_fork(before, child), Relaxed);
}

/// Whether libc's fork(3) calls our handlers.
pub fn is_registered() -> bool {
    REGISTERED.load(Relaxed)
}

/// Before vfork(): until the child has ended or called exec, this thread runs the child on the parent's memory, which the
/// child must not change.
pub extern "C" fn vfork_begins() {
    thread::set_vfork(true);
}

/// In the parent, when the child is gone. `result` is that of the system call. Returns the return value of vfork().
pub extern "C" fn vfork_ends(result: isize) -> isize {
    thread::set_vfork(false);
    if result < 0 {
        errno::set(-result as i32);
        return -1;
    }
    result
}
