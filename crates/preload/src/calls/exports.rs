//! The exported functions, which the dynamic linker finds before libc's: each call of the table leads to its hook.

use super::table::table;
use crate::hooks::{self, fds, files, msg, names, poll, processes, rw, signals, sockets, syscall};
use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use libc::{epoll_event, fd_set, iovec, mmsghdr, msghdr, off_t, pid_t, pollfd, sigset_t, size_t, sockaddr};
use libc::{socklen_t, ssize_t, timespec, timeval};

macro_rules! export {
    ($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $hook:path $(, $before:ident)?) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $(hooks::$before();)?
            // SAFETY: the caller keeps libc's contract for this function; the hook relies on no more.
            unsafe { $hook($($arg),*) }
        }
    };
}

macro_rules! exports {
    ($($name:ident $args:tt -> $ret:ty = $hook:path $(, also $alias:ident)*
        $(, raw $number:ident)? $(, else $own:path)? $(, later $failing:path)? $(, first $before:ident)?;)*) => {
        $(
            export!($name $args -> $ret = $hook $(, $before)?);
            $(
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                unsafe extern "C" fn $alias() {
                    sidestep_sys::jump_body!($name)
                }
            )*
        )*
    };
}

table!(exports);
