//! The hooks: look up what the descriptor stands for, dispatch, done.

pub mod fds;
pub mod files;
pub mod msg;
pub mod poll;
pub mod processes;
pub mod rw;
pub mod signals;
pub mod sockets;
pub mod syscall;
mod time;

use crate::fdtable::{self, Kind};

/// The connection that `fd` stands for.
#[inline]
fn conn(fd: i32) -> Option<u32> {
    match fdtable::get(fd) {
        Kind::Conn(index) => Some(index),
        Kind::Closing => after_close(fd),
        _ => None,
    }
}

/// How often, and how long each time, a call waits for a close in another thread: 10 ms in all.
const LOOKS: u32 = 200;
const LOOK_US: u64 = 50;

/// Another thread is just closing the number. A call that went to the kernel now would meet a connection that is half
/// in its ring and half out; once the close is over, the kernel answers.
#[cold]
fn after_close(fd: i32) -> Option<u32> {
    for _ in 0..LOOKS {
        match fdtable::get(fd) {
            Kind::Closing => sidestep_sys::clock::nap_us(LOOK_US),
            Kind::Conn(index) => return Some(index),
            _ => return None,
        }
    }
    None
}
