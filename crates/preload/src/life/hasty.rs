//! Negative timeouts of sockets that are not followed.

use crate::{errno, settings};
use core::sync::atomic::{AtomicBool, Ordering::*};
use sidestep_sys::tcp;

/// The program has set a negative timeout on a TCP socket that was not followed yet. The kernel then never waits, but getsockopt(2)
/// reads back 0, also from the sockets that inherit the timeout from their listener. So nobody can tell which connections have it.
static HASTY: AtomicBool = AtomicBool::new(false);

/// setsockopt() has set a negative timeout on `fd`, which is not followed.
#[cold]
pub fn note(fd: i32) {
    if settings::active() && errno::keep(|| tcp::is_tcp(fd)) {
        HASTY.store(true, Relaxed);
    }
}

/// Whether there may be such a socket.
pub fn is_any() -> bool {
    HASTY.load(Relaxed)
}
