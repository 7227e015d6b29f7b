//! close(2) does not disturb a call that is blocked on the descriptor: the connection lives until that call is over.

use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::{arena, waiter};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_ring::side;
use sidestep_sys::fd as fdsys;

/// Number of closed connections that live on because a thread is blocked on them.
pub static ORPHANS: AtomicU32 = AtomicU32::new(0);

/// Gives the connection a descriptor of the library's own, and locks both ends until [`go_on`]: as soon as the kernel has
/// closed the old descriptor, its number may be another file's. False: the connection cannot live on.
pub fn adopt(index: u32, c: &Conn, fd: i32) -> bool {
    let local = arena::local(index);
    if c.lock_ends().is_err() {
        return false; // this handler has interrupted the very call that is blocked
    }
    let Ok(own) = fdsys::fcntl(fd, libc::F_DUPFD_CLOEXEC, fdsys::LOWEST as usize) else {
        c.unlock_ends();
        return false;
    };
    fdtable::set(own as i32, Kind::Own);
    local.fd.store(own as u32, Relaxed);
    if c.is_attached() && !arena::is_inherited(c) {
        side::set_number(&c.words().side[c.my_side()], own as u32);
    }
    local.refs.store(1, Relaxed);
    local.orphan.store(1, SeqCst);
    ORPHANS.fetch_add(1, Relaxed);
    true
}

/// The old descriptor is closed: unlocks the ends, and wakes the blocked threads, which continue with the new descriptor.
pub fn go_on(index: u32) {
    let c = arena::conn(index);
    c.unlock_ends();
    if c.is_attached() {
        waiter::ring_all(side::doorbells(&c.words().side[c.my_side()]));
    }
}

/// In a forked child: the threads that keep orphans alive do not exist here.
pub fn reset_orphans_in_child() {
    ORPHANS.store(0, Relaxed);
}
