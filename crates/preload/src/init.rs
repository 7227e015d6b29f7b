//! Before main() and after it.

use crate::{calls, exec, fork, settings, thread};
use core::ffi::{c_char, c_int};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = finish;

/// glibc hands main()'s arguments to constructors.
extern "C" fn begin(_argc: c_int, _argv: *const *const c_char, envp: *const *const c_char) {
    calls::resolve();
    thread::resolve();
    if !envp.is_null() {
        // SAFETY: once, from the constructor, with the process's environment.
        unsafe { settings::load(envp) };
    }
    if settings::get().on {
        fork::register();
    }
}

extern "C" fn finish() {
    exec::leave();
}
