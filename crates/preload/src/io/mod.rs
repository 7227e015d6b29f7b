//! The program's reads and writes of connections, through whichever call they come.

pub mod past_us;
pub mod recv;
pub mod send;

use crate::record::Conn;
use crate::{arena, attach, drain, errno, member};
use core::sync::atomic::Ordering::Relaxed;
use sidestep_abi::Reason;
use sidestep_conn::{Course, Phase};

/// The beginning of every call on a connection: handles messages of the broker, and takes the connection's next step into a
/// ring or back.
#[inline]
pub fn arrive(index: u32) -> &'static Conn {
    let c = arena::conn(index);
    member::check();
    if c.phase.is_moving() {
        move_on(index, c);
    }
    if c.is_attached() && arena::is_inherited(c) {
        disinherit(index, c);
    }
    c
}

/// Takes the connection's next step, if it is possible now.
#[cold]
fn move_on(index: u32, c: &'static Conn) {
    if !attach::advance(index, c) {
        errno::keep(member::settle);
    }
    if matches!(c.phase.phase(), Phase::Returning { .. }) && c.course.is(Course::Kernel) {
        errno::keep(|| attach::demote(index, c));
    }
}

/// A forked child touches a connection that its parent has attached. Nobody can ring the child. So our direction goes to the
/// kernel now, and the other one once the ring is empty ([`arena::is_inherited`]).
#[cold]
fn disinherit(index: u32, c: &'static Conn) {
    let fd = arena::local(index).fd.load(Relaxed) as i32;
    if c.keep() || c.course.is(Course::Ring) {
        errno::keep(|| drain::tx(c, fd, Reason::Shared));
    }
}
