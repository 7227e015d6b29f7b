//! fork(): the child also holds every connection, but membership, doorbells and counters are the parent's. A connection that
//! the child touches goes back to the kernel for both.

use crate::arena::Birth;
use crate::thread::{self, Prepared};
use crate::uring::table as rings;
use crate::{
    arena, blocked, counters, debts, drain, errno, fdtable, generation, handlers, host, life::adopt, lineage, member,
    pid_namespace, settings, stream::late, wait, waiter,
};
use core::sync::atomic::{AtomicBool, Ordering::*};
use fdtable::Kind;
use sidestep_abi::Reason;
use sidestep_sys::tcp;

/// Checked now and then: a child made by a system call that the library has not seen finds out that it is a child.
#[cold]
pub fn notice() {
    if !thread::in_vfork() && lineage::is_copy() {
        in_child();
    }
}

/// Before the fork: registers the child as a holder of everything that this process holds.
pub fn prepare() {
    prepare_child(false);
}

/// As [`prepare`]. `is_apart`: the call makes the child in a PID namespace of its own.
pub fn prepare_child(is_apart: bool) {
    if !settings::active() {
        return;
    }
    errno::keep(|| {
        notice(); // a child made out of sight would give away its parent's bits
        cancel_prepared(); // of a fork by daemon(3) or forkpty(3) that failed, which nobody has told us
        let is_apart = is_apart || fdtable::follows_any() && pid_namespace::is_another_for_children();
        let prepared = if is_apart {
            leave_to_kernel();
            Prepared::Apart
        } else {
            share()
        };
        thread::set_prepared(prepared);
    });
}

fn share() -> Prepared {
    wait::epoll::shared::before_fork();
    if !arena::exists() {
        return Prepared::Alone;
    }
    let Some(birth) = arena::reserve_for_child() else {
        leave_to_kernel();
        return Prepared::Crowded;
    };
    wait::epoll::shared::hold(birth.place());
    for_each_conn(|_, index| arena::share_with_child(index, birth.place()));
    Prepared::Birth(birth.number())
}

/// The child will have the kernel's sockets and sets, and no part in what this process knows of them: the kernel serves both.
#[cold]
fn leave_to_kernel() {
    wait::epoll::shared::leave_all();
    let batch = drain::Batch::begin();
    for_each_conn(|fd, index| batch.to_kernel(arena::conn(index), fd, Reason::Shared));
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
    errno::keep(cancel_prepared);
}

/// No effect if the child is there, and has come to life.
fn cancel_prepared() {
    if let Prepared::Birth(number) = thread::claim_prepared() {
        arena::cancel_child(Birth::of(number));
    }
}

/// In the parent, if a child was made, whose number is `pid`. A child that is made later, out of our sight, must not take the place
/// of this one.
pub fn done(pid: u32) {
    // A number of another namespace would mean nothing to the family. Such a child gives its place back itself.
    if let Prepared::Birth(number) = thread::claim_prepared()
        && !errno::keep(pid_namespace::is_another_for_children)
    {
        arena::child_is(Birth::of(number), pid);
    }
}

pub fn in_child() {
    // A handler of the program that libc runs before ours may have made us notice already.
    if !settings::active() || lineage::is_marked_own() {
        return;
    }
    errno::keep(|| {
        lineage::renew();
        thread::reset_in_child();
        debts::reset_in_child();
        generation::next();
        inherit();
        blocked::reset_in_child();
        fdtable::for_each(|fd, kind| match kind {
            Kind::Conn(index) => blocked::reset_connection_in_child(index),
            // The program has closed this connection. Only a call of a thread that does not exist here keeps it
            // (`life::adopt`).
            Kind::Own if tcp::is_tcp(fd) => fdtable::drop_own(fd),
            _ => {}
        });
        adopt::reset_orphans_in_child();
        counters::reset_in_child();
        wait::sets::unlock_all();
        handlers::unlock();
        late::reset_in_child();
        rings::unlock_all();
        member::reset_in_child();
        waiter::reset_in_child();
    });
}

/// In the child: what it holds of what its parent has.
fn inherit() {
    let prepared = thread::claim_prepared();
    // The parent has asked where the child will be, if the library has seen the fork. A handler of the program may have changed that
    // afterwards.
    let may_be_foreign = prepared == Prepared::Nothing || pid_namespace::has_moved();
    if prepared == Prepared::Apart || may_be_foreign && pid_namespace::is_foreign() {
        return leave_family(prepared);
    }
    match prepared {
        Prepared::Nothing => {
            arena::forget_place();
            for_each_conn(|fd, index| {
                if !arena::hold_late(index) {
                    fdtable::set(fd, Kind::Other);
                }
            });
            wait::epoll::shared::hold_late();
        }
        Prepared::Alone => {
            arena::forget_place();
            fdtable::reset_in_child(|_| false);
            wait::epoll::shared::hold_late();
        }
        Prepared::Birth(number) if arena::become_child(Birth::of(number)) => {
            let bit = 1 << Birth::of(number).place();
            // Other threads of the parent may have begun a connection since `prepare`, or may have been closing one.
            fdtable::reset_in_child(|index| arena::conn(index).holders.bits() & bit != 0);
        }
        Prepared::Birth(_) | Prepared::Crowded | Prepared::Apart => {
            arena::forget_place();
            inherit_nothing();
        }
    }
}

/// The child belongs to no family but its own.
fn leave_family(prepared: Prepared) {
    if let Prepared::Birth(number) = prepared {
        arena::cancel_child(Birth::of(number));
    }
    inherit_nothing();
    arena::leave_family();
}

/// The child has the kernel's sockets and sets only.
fn inherit_nothing() {
    wait::sets::unlock_all();
    for_each_conn(|fd, _| wait::epoll::return_to_kernel(fd));
    blocked::reset_connections_in_child();
    fdtable::reset_in_child(|_| false);
    wait::epoll::shared::leave_family_in_child();
}

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Makes libc call us around every fork that it knows of, including those of daemon(3) and forkpty(3).
pub fn register() {
    lineage::begin();
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
