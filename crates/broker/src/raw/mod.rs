//! The only unsafe code of the broker: shared memory, and the socket calls for which no sound wrapper exists.
#![allow(unsafe_code)]

pub mod fds;
pub mod mem;
pub mod netns;
pub mod sock;
