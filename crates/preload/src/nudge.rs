//! SIGURG: a peer is waiting for us to take bytes back from a ring, and no doorbell reaches us, because we are
//! computing or blocked in a call that is not ours. Its default action is to be ignored, so a program that does
//! not handle it notices nothing; one that does keeps its own handler, and peers wait for our next call.

use crate::{errno, fdtable, io, link, member, next, record::Conn};
use core::sync::atomic::{AtomicU32, Ordering::*};
use fdtable::Kind;

/// Listens, unless the program itself does. Called with every attachment; works once.
pub fn listen() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    if DONE.swap(1, AcqRel) != 0 {
        return;
    }
    // SAFETY: integers and pointers: all zero is a value (SIG_DFL).
    let mut old: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: a question only; libc's own function, which fills `old`.
    if unsafe { next::sigaction(libc::SIGURG, core::ptr::null(), &raw mut old) } != 0
        || old.sa_sigaction != libc::SIG_DFL
    {
        return;
    }
    old.sa_sigaction = heard as extern "C" fn(i32) as usize;
    old.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: a handler that only does what is safe in one: system calls and our own, reentrant, locks.
    unsafe { next::sigaction(libc::SIGURG, &raw const old, core::ptr::null_mut()) };
}

/// How often we have been asked.
static HEARD: AtomicU32 = AtomicU32::new(0);

pub fn count() -> u32 {
    HEARD.load(Relaxed)
}

extern "C" fn heard(_signal: i32) {
    HEARD.fetch_add(1, Relaxed);
    errno::keep(|| {
        fdtable::for_each(|_, kind| {
            if let Kind::Conn(index) = kind {
                io::send::serve(index);
            }
        });
    });
}

/// Asks the peer of this connection to look. A forked child, who is no member, asks without the broker.
pub fn peer(c: &Conn) {
    let l = link::get(c.link.load(Relaxed));
    if !member::nudge(l.id()) {
        sidestep_sys::process::signal(l.peer_pid(), libc::SIGURG);
    }
}
