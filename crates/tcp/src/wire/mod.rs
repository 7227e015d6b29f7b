//! Frames: Ethernet, IPv4 without options, IPv6 without extension headers, TCP. Whatever else there is, is not understood.

pub mod about;
pub mod checksum;
pub mod frame;
pub mod options;
pub mod parse;
pub mod split;
