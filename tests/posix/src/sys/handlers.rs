//! The functions of `c/handlers.c` and `c/jumps.c`.

use libc::c_int;

use super::Fd;

macro_rules! in_c {
    ($($call:ident)*; $($pair:ident)*) => {
        unsafe extern "C" {
            $(fn $call(fd: c_int) -> c_int;)*
            $(fn $pair(fd: c_int, peer: c_int) -> c_int;)*
        }

        $(
            /// By the C function of the same name.
            pub mod $call {
                pub fn check(fd: super::Fd) {
                    // SAFETY: the function works on a descriptor, and restores every signal's action that it needs again.
                    assert_eq!(unsafe { super::$call(fd) }, 0, "line of tests/posix/c/handlers.c");
                }
            }
        )*
        $(
            /// By the C function of the same name.
            pub mod $pair {
                pub fn check(fd: super::Fd, peer: super::Fd) {
                    // SAFETY: the function works on two descriptors; its jumps stay within it and what it calls.
                    assert_eq!(unsafe { super::$pair(fd, peer) }, 0, "line of tests/posix/c/jumps.c");
                }
            }
        )*
    };
}

in_c! {
    handlers_see_what_the_kernel_says handlers_of_sent_signals handlers_may_nest_or_not handlers_have_their_stack
    handlers_jump_out handlers_are_shown_as_they_are_set handlers_by_system_call handlers_installed_past_libc
    handlers_default_ends_the_process handlers_for_one_signal handlers_ignored_stay_ignored_by_exec
    handlers_blocked_signals handlers_blocked_signals_are_shown;
    jumps_out_of_sends jumps_out_of_interrupted_sends jumps_out_of_waits jumps_from_other_stacks
}
