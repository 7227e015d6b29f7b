//! `libsidestep.so`: loaded before libc by LD_PRELOAD, whichever libc it is.
//!
//! `calls` is the table of everything that is intercepted. A hook in `hooks` looks up what a descriptor stands
//! for (`fdtable`) and passes the call on, to the program's own libc (`calls::next`) or to `io` and `wait`.
//! No allocation, no std, no locks but our own: hooks run inside malloc, in signal handlers, and before main().
#![no_std]

// Test builds unwind, as the test harness does, which needs std. The shipped build aborts and has no std.
#[cfg(panic = "unwind")]
extern crate std;

mod arena;
mod attach;
mod blocked;
mod broker;
mod calls;
mod counters;
mod critical;
mod debts;
mod drain;
mod earlier;
mod errno;
mod excuse;
mod exec;
mod faults;
mod fdtable;
mod fork;
mod gate;
mod generation;
mod handlers;
mod hooks;
mod host;
mod init;
mod io;
mod life;
mod lineage;
mod link;
mod log;
mod member;
mod offer;
mod offer_pause;
mod passed;
mod pending_releases;
mod pid_namespace;
mod record;
mod report;
mod rest;
mod settings;
mod spawn_actions;
mod spin;
mod stand_in;
mod stream;
mod suspend;
mod symbol;
mod text;
mod thread;
mod unseen;
mod uring;
mod user;
mod wait;
mod waiter;

use calls::next;

/// A bug of the library must not become undefined behaviour of the program: prints where it is, and aborts.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let mut line = text::Line::new();
    line.push(b"sidestep: bug in libsidestep.so at ");
    if let Some(at) = info.location() {
        line.push(at.file().as_bytes()).push(b":").number(u64::from(at.line()));
    }
    sidestep_sys::fd::complain(line.push(b"; please report it\n").bytes());
    sidestep_sys::process::abort()
}
