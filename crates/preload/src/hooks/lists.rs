//! Whether a list for poll concerns the library.

use crate::fdtable::{self, Kind};
use crate::user;
use libc::pollfd;
use sidestep_sys::limit;

/// Entries that are read from the program at a time.
const PART: usize = 8;
/// An entry without a descriptor.
pub const NOBODY: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// The kernel refuses a list that is longer than the limit. Of most lists the limit is not even asked.
fn is_too_long(n: usize, limit: impl FnOnce() -> u64) -> bool {
    n > fdtable::MAX_FD && n as u64 > limit()
}

/// Whether a list holds a connection or a set of ours.
pub fn holds_ours(fds: *const pollfd, n: usize) -> bool {
    if !fdtable::follows_any() || is_too_long(n, limit::descriptor_limit) {
        return false;
    }
    let mut part = [NOBODY; PART];
    for at in (0..n).step_by(PART) {
        let part = &mut part[..(n - at).min(PART)];
        if user::read_all(part, fds.wrapping_add(at)).is_err() {
            return false; // the kernel refuses the pointer
        }
        if part.iter().any(|p| matches!(fdtable::get(p.fd), Kind::Conn(_) | Kind::Set(_))) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_long_as_the_kernel_permits() {
        assert!(!is_too_long(fdtable::MAX_FD, || panic!("not asked")));
        assert!(!is_too_long(fdtable::MAX_FD + 1, || 1 << 20));
        assert!(is_too_long(fdtable::MAX_FD + 1, || 20_000));
    }
}
