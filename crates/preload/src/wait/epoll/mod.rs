//! epoll(7) for sets that hold upgraded connections: event mask for event mask what the kernel would say.
//!
//! A set goes on to be a kernel set. Of an upgraded connection the kernel watches only the life ([`MANAGED`]), under a
//! tag of ours; what the program asked for is in the set's own list of registrations (`sets.rs`).
//!
//! ```text
//! epoll_ctl ----> interest ----> registrations <---- takeover <---- a connection upgrades, returns, closes
//!                                      |
//! epoll_wait ---> wait ---> harvest <--+     sleeps in the kernel on everything at once, doorbell included
//!                              \---> nested  sets inside other sets must become readable by themselves
//! ```

mod harvest;
mod interest;
mod nested;
mod takeover;
mod wait;

pub use harvest::expect_space;
pub use interest::ctl;
pub use nested::nest;
pub use takeover::{closed, forget, has_unmanaged, is_member, manage, manage_fired, restore};
pub use wait::wait;

use super::readiness::{IN, PRI, RDHUP};
use super::sets::{self, Set};
use crate::fdtable::{self, Kind};
use crate::{place, settings};
use core::sync::atomic::Ordering::*;
use libc::epoll_event;
use sidestep_sys::{Result, call};

const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What the kernel tells us of a managed connection: every change, once. "Writable" only on demand
/// ([`ask_for_out`]): it nearly always is.
const MANAGED: u32 = IN | RDHUP | PRI | ET;
/// Upper half of the data of our own kernel registrations; the descriptor is the lower half.
const TAG: u64 = 0x51de_57e9 << 32;
const DOORBELL: u64 = TAG | 0xffff_ffff;

fn is_tag(data: u64) -> bool {
    data & 0xffff_ffff_0000_0000 == TAG
}

/// epoll_ctl(2) on our behalf.
fn kernel_ctl(epfd: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
    let mut event = epoll_event { events, u64: data };
    let args = [epfd as usize, op as usize, fd as usize, &raw mut event as usize, 0, 0];
    // SAFETY: one epoll_event, alive.
    unsafe { call(libc::SYS_epoll_ctl, args) }.map(drop)
}

/// epoll_create(2) has returned `fd`.
pub fn created(fd: i32) {
    if fd >= 0
        && settings::active()
        && let Some(index) = sets::create(fd)
        && !fdtable::set(fd, Kind::Set(index))
    {
        sets::get(index).refs.store(0, Release);
    }
}

/// Something was queued from outside of a wait: whoever sleeps there must look.
fn kick(s: &Set) {
    if let Some(p) = s.place().filter(|p| place::has_sleepers(*p)) {
        sidestep_sys::fd::ring(place::eventfd(p));
    }
    // Who waits in an outer set, or in poll, sleeps elsewhere.
    if s.nested.load(Relaxed) {
        nested::arm_nested(s);
    }
}
