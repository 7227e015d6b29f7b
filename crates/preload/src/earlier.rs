//! Connections that an earlier broker has paired. They go on by ring, and the present broker does not have their memory. So this process
//! does for it what a broker does: counts them, and holds them on the kernel when the operator wants that.

use crate::link::{self, Link};
use crate::stream::stretch;
use crate::{arena, broker, counters};
use core::sync::atomic::{AtomicBool, Ordering::*};
use sidestep_ring::page;

/// The hold that these connections have been told last.
static HELD: AtomicBool = AtomicBool::new(false);

/// Links of brokers before the present one. While there is none: all links.
fn links() -> impl Iterator<Item = &'static Link> {
    let present = broker::era();
    link::all().filter(move |l| l.id().2 != present)
}

/// Whether there may be such connections. A link of an earlier broker goes with its last connection.
pub fn may_exist() -> bool {
    links().next().is_some()
}

/// Tells the broker how many there are.
pub fn tell() {
    let count: usize = links().map(|l| l.connections().count()).sum();
    page::set_earlier(counters::page(), count as u32);
}

/// This process shares its page with a new broker: the connections of the last one are among these now, and do not know of a hold.
pub fn begin() {
    if counters::holds() {
        HELD.store(false, Relaxed);
    }
    tell();
}

/// Holds the connections on the kernel if the broker holds all of this process's, or lets them go. The caller holds the broker lock.
/// True: the caller calls [`attend`] once it has given that back.
pub fn obey() -> bool {
    let hold = counters::holds();
    let has_changed = HELD.swap(hold, Relaxed) != hold;
    if has_changed {
        links().for_each(|l| l.connections().for_each(|(slot, _)| l.hold(slot, hold)));
    }
    has_changed
}

/// Does what the connections' writers have to do after [`obey`], which may send, and wait for a stack.
#[cold]
pub fn attend() {
    for (_, index) in links().flat_map(Link::connections) {
        let c = arena::conn(index);
        if c.is_attached() {
            stretch::attend(c, arena::local(index).fd.load(Relaxed) as i32);
        }
    }
}
