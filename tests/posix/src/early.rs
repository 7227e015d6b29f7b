//! A program whose connection was made before main, and before any library's constructor.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::end::{End, Side};
use crate::link;
use crate::sys::process;

unsafe extern "C" {
    /// Written by `c/before_main.c` before main.
    static before_main_socket: AtomicI32;
}

/// Number of bytes that were exchanged before main.
pub const PINGS: usize = 2;

/// Exchanges the warm-up's bytes over the connection that was made before main, and closes it.
pub fn run() {
    process::die_with_parent();
    // SAFETY: an integer that nobody writes any more.
    let fd = unsafe { before_main_socket.load(Ordering::Relaxed) };
    assert!(fd >= 0, "before main: step {fd} failed");
    let mut end = End::new(fd, Side::Client);
    link::warm_asking(&mut end);
    end.close();
}
