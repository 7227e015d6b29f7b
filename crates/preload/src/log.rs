//! What the library says of itself, to users who want to hear it.

use crate::settings;
use crate::text::Line;
use sidestep_sys::{fd, process};

/// Says something on stderr if the user wants to hear it.
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
