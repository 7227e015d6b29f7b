//! Messages of the library on stderr, for users who enable them.

use crate::settings;
use crate::text::Line;
use sidestep_sys::{fd, process};

/// Writes a message to stderr, if the user has enabled messages.
pub fn say(parts: &[&[u8]], n: u64) {
    if settings::get().log {
        let mut line = Line::new();
        line.push(b"sidestep[").number(u64::from(process::pid())).push(b"]: ");
        for part in parts {
            line.push(part);
        }
        line.number(n).push(b"\n");
        fd::complain(line.bytes());
    }
}
