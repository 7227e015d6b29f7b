//! Safe functions over libc's symbols, one for each call, so that a preloaded library sees them.

pub(crate) mod bad;
pub(crate) mod bare;
pub mod cpu;
pub mod epoll;
pub mod errno;
pub mod fds;
pub mod files;
pub(crate) mod glibc;
pub(crate) mod handlers;
pub mod io;
pub mod net;
pub(crate) mod only_c;
pub mod passing;
pub mod poll;
pub mod process;
pub mod select;
pub mod signal;
pub(crate) mod stdio;
pub(crate) mod threads;
pub(crate) mod uring;

/// A file descriptor. A plain number on purpose: the tests are about what happens to numbers.
pub type Fd = libc::c_int;
