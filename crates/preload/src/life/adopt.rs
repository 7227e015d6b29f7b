//! close(2) does not disturb a call that is blocked on the descriptor: the connection lives until that is over.

use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::{arena, waiter};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_ring::side;
use sidestep_sys::fd as fdsys;

/// Connections that are closed and only kept for threads that are blocked on them.
pub static ORPHANS: AtomicU32 = AtomicU32::new(0);

/// Gives the connection a number of our own. Nobody works on it until [`go_on`]: the old number may be another
/// file's from the kernel's close on.
pub fn adopt(index: u32, c: &Conn, fd: i32) -> bool {
    let local = arena::local(index);
    if c.lock_ends().is_err() {
        return false; // this handler has interrupted the call that is blocked
    }
    let Ok(own) = fdsys::fcntl(fd, libc::F_DUPFD_CLOEXEC, fdsys::LOWEST as usize) else {
        c.unlock_ends();
        return false;
    };
    fdtable::set(own as i32, Kind::Own);
    local.fd.store(own as u32, Relaxed);
    if c.is_attached() {
        side::set_number(&c.words().side[c.my_side()], own as u32);
    }
    local.refs.store(1, Relaxed);
    local.orphan.store(1, SeqCst);
    ORPHANS.fetch_add(1, Relaxed);
    true
}

/// The old number is gone: whoever waits there goes on with the new one.
pub fn go_on(index: u32) {
    let c = arena::conn(index);
    c.unlock_ends();
    if c.is_attached() {
        waiter::ring_all(side::doorbells(&c.words().side[c.my_side()]));
    }
}
