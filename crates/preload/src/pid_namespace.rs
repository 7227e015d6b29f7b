//! PID namespaces. The processes of a family judge by process numbers which of them live, and a number names a process in one
//! namespace only: a child in another one would take its living relatives for dead. So it belongs to no family but its own.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use sidestep_sys::process;

/// Where children are made. A process may begin with any state, which unshare(2) or setns(2) has set before its exec().
static CHILDREN: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
/// In the namespace of this process.
const HERE: u32 = 1;
/// Some thread has called unshare(2) or setns(2), which concern its own children only: each fork asks the kernel.
const MOVED: u32 = 2;

/// The namespace of the family's memory; 0: not known.
static FAMILY: AtomicU64 = AtomicU64::new(0);

/// A thread has called unshare(2) or setns(2) with success.
pub fn moved() {
    CHILDREN.store(MOVED, Relaxed);
}

/// Whether [`moved`] was called in this process, or in one that has forked it.
pub fn has_moved() -> bool {
    CHILDREN.load(Relaxed) == MOVED
}

/// Whether a child that the calling thread forks now will be in another PID namespace.
pub fn is_another_for_children() -> bool {
    let state = CHILDREN.load(Relaxed);
    if state == HERE {
        return false;
    }
    let is_here = match process::pid_namespace() {
        // The kernel names none for children as long as a new namespace has no process.
        Some(own) => process::pid_namespace_of_children() == Some(own),
        None => state != MOVED, // /proc is not there
    };
    if is_here {
        let _ = CHILDREN.compare_exchange(UNKNOWN, HERE, Relaxed, Relaxed);
    }
    !is_here
}

/// This process begins a family.
pub fn begin_family() {
    FAMILY.store(process::pid_namespace().unwrap_or(0), Relaxed);
}

/// Whether this process is in another namespace than the family whose memory it has inherited.
pub fn is_foreign() -> bool {
    let family = FAMILY.load(Relaxed);
    family != 0 && process::pid_namespace().is_some_and(|own| own != family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_in_the_namespace_of_their_parent() {
        assert!(process::pid_namespace().is_some());
        assert!(!is_another_for_children());
        assert!(!has_moved());
        moved();
        assert!(has_moved());
        assert!(!is_another_for_children(), "the kernel has the last word");
        begin_family();
        assert!(!is_foreign());
    }
}
