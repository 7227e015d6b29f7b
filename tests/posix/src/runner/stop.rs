//! Ctrl-C and SIGTERM. The cases run in process groups of their own, so the runner must end them.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

pub fn on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        crate::sys::signal::handle(signal, libc::SA_RESTART, ask);
    }
}

pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
