//! Event masks of managed connections in the kernel's set.

use super::{ET, MANAGED, kernel_ctl, tag};
use crate::wait::readiness::{ARRIVALS, IN, OUT_ANY, PRI, RDHUP};
use crate::wait::sets::{Regs, Set};
use core::sync::atomic::Ordering::Relaxed;
use libc::EPOLL_CTL_MOD;

/// The mask for a managed connection that the program has registered for `wanted`. A nested set is readable as soon as the
/// kernel has an event of it, so its mask has no more than what the program may be told.
pub(super) fn watched(s: &Set, wanted: u32) -> u32 {
    if !s.nested.load(Relaxed) {
        return MANAGED;
    }
    let arrivals = if wanted & ARRIVALS != 0 { IN } else { 0 };
    // An edge-triggered registration for bytes or space is told again, with what holds, when the peer ends its side.
    let told_again = wanted & ET != 0 && wanted & (ARRIVALS | OUT_ANY) != 0;
    let ends = if told_again || wanted & RDHUP != 0 { RDHUP } else { 0 };
    ET | arrivals | ends | wanted & PRI
}

/// The program has changed a registration in a nested set: changes the kernel's mask.
pub(super) fn watch_anew(s: &Set, regs: &mut Regs, fd: i32) {
    if !s.nested.load(Relaxed) {
        return;
    }
    if let Some(mask) = mask_of(s, regs, fd) {
        let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_MOD, fd, mask, tag::of(fd));
    }
}

/// The set is nested from now on. The kernel repeats events when a mask is changed, even events that were reported. So the mask
/// is changed only if it becomes smaller, urgent data aside.
pub(super) fn watch_less(s: &Set, regs: &mut Regs, fd: i32) {
    if mask_of(s, regs, fd).is_some_and(|mask| mask | PRI != MANAGED) {
        watch_anew(s, regs, fd);
    }
}

/// The mask for a connection in this set. None: it is not managed.
fn mask_of(s: &Set, regs: &mut Regs, fd: i32) -> Option<u32> {
    let r = regs.get(fd).filter(|r| r.is_managed())?;
    Some(watched(s, if r.is_awaited() { r.events } else { 0 }))
}
