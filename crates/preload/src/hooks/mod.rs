//! The hooks: each looks up what the descriptor stands for, and dispatches.

pub mod fds;
pub mod files;
mod lists;
pub mod msg;
pub mod names;
pub mod poll;
pub mod processes;
pub mod rw;
pub mod signals;
pub mod sockets;
pub mod syscall;
mod time;

use crate::fdtable::{self, Kind};
use crate::host;

/// What a cancellation point does at its beginning (pthreads(7)). libc's own function does it if it is called, but a call on a ring may
/// return without.
#[inline]
pub fn end_if_cancelled() {
    if fdtable::follows_connections() {
        host::end_if_cancelled();
    }
}

/// The connection that `fd` stands for.
#[inline]
fn conn(fd: i32) -> Option<u32> {
    match fdtable::get(fd) {
        Kind::Conn(index) => Some(index),
        Kind::Closing => after_close(fd),
        _ => None,
    }
}

/// How often a call looks whether a close in another thread is over: 10 ms in all.
const LOOKS: u32 = 200;
const LOOK_US: u64 = 50;

/// Another thread is closing the descriptor. A native call now would find the connection between its ring and the kernel. So
/// the call waits until the close is over, and then the kernel answers.
#[cold]
fn after_close(fd: i32) -> Option<u32> {
    for _ in 0..LOOKS {
        match fdtable::get(fd) {
            Kind::Closing => _ = sidestep_sys::clock::nap_us(LOOK_US),
            Kind::Conn(index) => return Some(index),
            _ => return None,
        }
    }
    fdtable::closed(fd); // a jump may have left the close, which nobody ends then: the next call is not to wait again
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_that_was_left_delays_one_call_only() {
        const FD: i32 = 70_040;
        fdtable::set(FD, Kind::Closing);
        assert_eq!(conn(FD), None);
        assert!(fdtable::get(FD) == Kind::Other);
    }
}
