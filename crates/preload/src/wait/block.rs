//! A blocking call of the program on one connection.

use super::pause::{Number, Pause, Want};
use crate::debts::{self, Debt, Kind};
use crate::fdtable;
use crate::life::numbers::orphan_done;
use crate::record::{self, Conn};
use crate::{arena, blocked, drain, member, thread};
use core::sync::atomic::{Ordering::*, fence};
use sidestep_abi::Reason;
use sidestep_sys::{Errno, Result, arch};

/// The debt of a blocked call: it keeps a connection alive.
static KEPT: Kind = Kind(|index, _| let_go(index));

/// A blocking call, which may wait several times.
pub struct Blocking {
    timeout_us: u64,
    pause: Pause,
    /// The connection that this call keeps alive.
    keeps: Option<u32>,
}

impl Drop for Blocking {
    fn drop(&mut self) {
        if let Some(index) = self.keeps {
            let_go(index);
        }
    }
}

impl Blocking {
    /// `timeout_us`: SO_RCVTIMEO or SO_SNDTIMEO; 0: none.
    pub fn new(timeout_us: u64) -> Blocking {
        Blocking { timeout_us, pause: Pause::new(timeout_us), keeps: None }
    }

    /// As [`Pause::pause`], but closing the descriptor meanwhile does not end the wait. `moved`: bytes that the call has moved
    /// already.
    pub fn until(&mut self, index: u32, c: &'static Conn, fd: i32, want: Want, moved: usize) -> Result<()> {
        if self.timeout_us == record::NO_WAIT {
            return Err(Errno(libc::EAGAIN));
        }
        member::keep_up(arch::ticks());
        self.pause.has_moved(moved);
        if self.keeps.is_none() {
            debts::settle();
            keep(index, fd)?;
            self.keeps = Some(index);
        }
        let result = self.pause.pause(c, Number::kept(fd, index), want);
        if self.pause.was_past_us() {
            drain::to_kernel(c, arena::number(index, fd), Reason::NeverWaited);
        }
        result
    }
}

/// Makes the connection outlive its descriptor until [`let_go`]. EBADF: another thread is closing the descriptor.
fn keep(index: u32, fd: i32) -> Result<()> {
    let local = arena::local(index);
    blocked::enter(thread::tid(), index);
    debts::owe(Debt::new(&KEPT, index));
    // SYNC waiter
    fence(SeqCst);
    if fdtable::get(fd) == fdtable::Kind::Conn(index) || local.orphan.load(SeqCst) != 0 {
        return Ok(());
    }
    let_go(index);
    Err(Errno(libc::EBADF))
}

fn let_go(index: u32) {
    debts::paid(Debt::new(&KEPT, index));
    blocked::leave(thread::tid(), index);
    if arena::local(index).orphan.load(SeqCst) != 0 {
        orphan_done(index);
    }
}
