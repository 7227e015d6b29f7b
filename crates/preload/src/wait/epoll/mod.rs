//! epoll(7) for sets with upgraded connections. Every event mask is the one that the kernel would report.
//!
//! A set stays a kernel set. For an upgraded connection the kernel watches only what it alone knows ([`MANAGED`]), under a tag
//! of ours. The set's own list of registrations (`sets.rs`) has the program's interest.
//!
//! ```text
//! epoll_ctl ----> interest ----> registrations <---- takeover <---- a connection upgrades
//!                                      | ^------- giveback <---- it returns or closes; a set is shared
//! epoll_wait ---> wait ---> report <---+---- news <---- doorbells; what the kernel says (entries) of our tags
//!                   \---> nested             sets inside other sets must become readable by themselves
//! ```
//!
//! The order of what is reported is decided by the crate `sidestep-ready`.

mod entries;
mod family;
mod giveback;
mod interest;
mod mask;
mod nested;
mod news;
mod report;
mod seen;
pub mod shared;
mod tag;
mod takeover;
mod wait;

pub use giveback::{abandon, demoted, drop_set_aside, leave_in_batch, leave_to_kernel, remove, return_to_kernel};
pub use interest::ctl;
pub use nested::{native_cap, nest, poll_nested};
pub use news::for_each_number;
pub use seen::{closed, may_be_offered, saw_wait};
pub use takeover::{changed, has_unmanaged, is_watched, manage, manage_fired};
pub use wait::wait;

use super::readiness::{IN, PRI, RDHUP};
use super::sets::{self, Set};
use crate::fdtable::{self, Kind};
use crate::{settings, waiter};
use core::sync::atomic::Ordering::*;
use sidestep_sys::{Errno, Result, TRIES, fd as fdsys};

const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// Mask of a managed connection: every change, edge-triggered. Without "writable", which nearly always holds; [`ask_for_out`]
/// adds it when it is needed.
const MANAGED: u32 = IN | RDHUP | PRI | ET;

/// epoll_ctl(2) on our behalf. Tries again if memory is short for a moment, since no registration may be lost.
fn kernel_ctl(set: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
    let attempt = || fdsys::epoll_ctl(set, op, fd, events, data);
    let is_over = |result: &Result<()>| *result != Err(Errno(libc::ENOMEM));
    (1..TRIES).map(|_| attempt()).find(is_over).unwrap_or_else(attempt)
}

/// epoll_create(2) has returned `fd`: follows the set.
pub fn created(fd: i32) {
    if fd < 0 || !settings::active() {
        return;
    }
    tag::prepare();
    if let Some(index) = sets::create(fd)
        && !fdtable::set(fd, Kind::Set(index))
    {
        sets::get(index).refs.store(0, Release);
    }
}

/// Whether our doorbell is in the set, or may be: the kernel's events may include it.
#[inline]
pub fn has_doorbell(index: u32) -> bool {
    sets::get(index).had_waiter.load(Relaxed)
}

/// The waiter of the set. None also for the waiter of a parent: in this process the number is another waiter's.
fn own_waiter(s: &Set) -> Option<u32> {
    s.waiter().filter(|_| s.has_own_waiter())
}

/// A registration was listed outside of a wait: wakes a thread that sleeps in the set. `is_first`: the doorbell rings even if
/// nobody sleeps, so that the kernel's list keeps the order of the news.
fn kick(s: &Set, is_first: bool) {
    if let Some(p) = own_waiter(s).filter(|p| is_first || waiter::has_sleepers(*p)) {
        waiter::ring(p);
    }
    // Threads that wait in an outer set, or in poll, sleep elsewhere.
    if s.nested.load(Relaxed) {
        nested::arm_nested(s);
    }
}
