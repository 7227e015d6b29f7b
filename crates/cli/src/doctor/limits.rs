//! Resource limits of this shell, which programs inherit.

use super::Check;
use rustix::process::{Resource, getrlimit};
use sidestep_abi::env::DEFAULT_RING_SIZE;
use sidestep_abi::link::{PLACES, link_size};

/// Besides the program's own descriptors: the control socket, an epoll instance for each waiter, and for each peer process the
/// eventfds of its waiters.
pub fn descriptors() -> Check {
    let (name, least) = ("open files", 4 * PLACES as u64);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < least => Check::limited(
            name,
            format!("at most {limit} (RLIMIT_NOFILE)"),
            format!("raise it (ulimit -n {least} or more): doorbells need descriptors beside the program's own"),
        ),
        Some(limit) => Check::ok(name, format!("at most {limit} (RLIMIT_NOFILE)")),
        None => Check::ok(name, "no limit (RLIMIT_NOFILE)"),
    }
}

/// A link reserves address space for all the rings that it could have, but memory only for those in use.
pub fn address_space() -> Check {
    let (name, link) = ("address space", link_size(DEFAULT_RING_SIZE as usize) as u64);
    let need = format!("each peer process takes {} MiB of it (memory only where used)", link >> 20);
    let advice = "raise it (ulimit -v unlimited), or take smaller rings (--ring-size)";
    match getrlimit(Resource::As).current {
        None => Check::ok(name, format!("no limit (RLIMIT_AS); {need}")),
        Some(limit) if limit < 2 * link => {
            Check::fails(name, format!("{} MiB (RLIMIT_AS); {need}", limit >> 20), advice)
        }
        Some(limit) if limit < 32 * link => {
            Check::limited(name, format!("{} MiB (RLIMIT_AS); {need}", limit >> 20), advice)
        }
        Some(limit) => Check::ok(name, format!("{} MiB (RLIMIT_AS); {need}", limit >> 20)),
    }
}

pub fn locked_memory() -> Check {
    Check::ok("locked memory", "not needed: nothing is locked (RLIMIT_MEMLOCK does not matter)")
}
