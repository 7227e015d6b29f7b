//! Before main() and after it.

use crate::{calls, exec, fork, host, log, settings};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = finish;

/// glibc passes main()'s arguments to constructors. In other libcs the parameters are whatever the registers hold.
extern "C" fn begin(_argc: c_int, _argv: *const *const c_char, envp: *const *const c_char) {
    calls::symbols::resolve();
    host::resolve();
    let envp = host::first_environment(envp);
    // A program that has more rights than its user must not obey the user's environment.
    if envp.is_null() || host::is_privileged() {
        return;
    }
    // SAFETY: once, from the constructor, with the process's environment.
    unsafe { settings::load(envp, host::is_known()) };
    if !host::is_known() {
        log::say(
            &[b"neither glibc nor musl: the library does nothing in process "],
            sidestep_sys::process::pid().into(),
        );
    }
    if settings::get().on {
        fork::register();
        ENDS_LATER.store(host::register_end(end), Relaxed);
    }
}

/// Whether exit(3) will call `end`.
static ENDS_LATER: AtomicBool = AtomicBool::new(false);

/// Streams of stdio may still be written, and handlers may run that were registered before ours.
extern "C" fn end(_: *mut c_void) {
    exec::leave(false);
}

extern "C" fn finish() {
    if !ENDS_LATER.load(Relaxed) {
        exec::leave(false); // destructors of other libraries may follow
    }
}
