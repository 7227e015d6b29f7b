//! The hooks: look up what the descriptor stands for, dispatch, done.

pub mod fds;
pub mod files;
pub mod msg;
pub mod poll;
pub mod processes;
pub mod rw;
pub mod sockets;

use crate::fdtable::{self, Kind};

/// The connection that `fd` stands for.
#[inline]
fn conn(fd: i32) -> Option<u32> {
    match fdtable::get(fd) {
        Kind::Conn(index) => Some(index),
        _ => None,
    }
}
