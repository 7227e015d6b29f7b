//! Frames: Ethernet, IPv4 without options, IPv6 without extension headers, TCP. Whatever else there is, is not understood.
//!
//! These headers are own code, and etherparse makes the frames of the tests only. A frame is read in place, and each cause of refusal says
//! who gets the frame: nobody (damaged) or the kernel (not understood). A frame is written into the device's memory from headers that stand
//! ready, with a payload in two parts, since a ring wraps. Checksums may be partial, as a sender on this host leaves them.

pub mod about;
pub mod checksum;
pub mod frame;
pub mod options;
pub mod parse;
pub mod split;
