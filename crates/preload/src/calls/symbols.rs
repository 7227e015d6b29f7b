//! Addresses of the originals: found in the program's libraries, or those of stand-ins.
#![allow(non_upper_case_globals)]

use super::table::table;
use crate::stand_in::{self, signals as plain, waits};
use crate::symbol::{self, StandIn, Symbol};
use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use libc::{epoll_event, iovec, mmsghdr, msghdr, off_t, pid_t, size_t, sockaddr};
use libc::{socklen_t, ssize_t, timespec};

/// The `Symbol` of one original.
macro_rules! symbol {
    ($name:ident $args:tt -> $ret:ty) => {};
    ($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, raw $number:ident) => {
        symbol!($name, StandIn::Complete({
            unsafe extern "C" fn raw($($arg: $ty),*) -> $ret {
                // SAFETY: the system call of this name, for which the caller's arguments are.
                let done = unsafe { sidestep_sys::call(libc::$number, stand_in::words([$($arg as usize),*])) };
                crate::errno::give(done) as $ret
            }
            raw as *const c_void
        }));
    };
    ($name:ident $args:tt -> $ret:ty, else $function:path) => {
        symbol!($name, StandIn::Complete($function as *const c_void));
    };
    ($name:ident $args:tt -> $ret:ty, later $function:path) => {
        symbol!($name, StandIn::Failing($function as *const c_void));
    };
    ($name:ident, $stand_in:expr) => {
        pub static $name: Symbol = Symbol::new(
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            },
            $stand_in,
        );
    };
}

/// The entry of one original in the list of all symbols.
macro_rules! listed {
    ($name:ident) => {
        None
    };
    ($name:ident, $word:tt $stand_in:path) => {
        Some(&$name)
    };
}

macro_rules! symbols {
    ($($name:ident $args:tt -> $ret:ty = $hook:path $(, also $alias:ident)*
        $(, raw $number:ident)? $(, else $own:path)? $(, later $failing:path)? $(, first $before:ident)?;)*) => {
        $(symbol!($name $args -> $ret $(, raw $number)? $(, else $own)? $(, later $failing)?);)*

        /// Looks up all originals.
        pub fn resolve() {
            symbol::resolve(&[
                $(listed!($name $(, raw $number)? $(, else $own)? $(, later $failing)?),)*
            ]);
        }
    };
}

table!(symbols);

/// Whether the program's libc has _Fork(3): glibc since 2.34, musl since 1.2.2.
pub fn has_plain_fork() -> bool {
    _Fork.is_there()
}
