//! Executes a program with the signals that this process was started with.
//!
//! Rust's runtime ignores SIGPIPE before `main`, and `std::process` sets SIGPIPE's default action before it executes a program. Without
//! this crate, a program whose parent ignores SIGPIPE, as systemd and `trap '' PIPE` do, would be killed by a write that the parent wants
//! to fail with EPIPE. Runtime and `std::process` leave all other signals, and the mask of blocked ones, as they are.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// SIGPIPE was ignored when this process began.
static IGNORED: AtomicBool = AtomicBool::new(false);

// The C library calls the functions of this section before `main`, and so before Rust's runtime changes SIGPIPE. `used`, since
// nothing refers to the pointer.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the present one, for which `found` has room.
    if unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), found.as_mut_ptr()) } == 0 {
        // SAFETY: the call has succeeded, and so has written the action.
        let action = unsafe { found.assume_init() };
        IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
    }
}

/// Replaces this process by the program. Returns only after an error.
pub fn exec(command: &mut Command) -> io::Error {
    if IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the function makes one system call, and neither allocates nor locks.
        unsafe { command.pre_exec(ignore) };
    }
    command.exec()
}

/// `std::process` calls it after it has set the default action.
fn ignore() -> io::Result<()> {
    // SAFETY: installs no handler.
    match unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
