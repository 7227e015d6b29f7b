//! A wait for one connection, on its socket and on a doorbell.

use super::signals::{self, Quiet};
use super::{Deadline, Patience, UNKNOWN_BELL_US, readiness};
use crate::fdtable::{self, Kind};
use crate::record::{Conn, flag};
use crate::stream::{due, kept, leave, stretch, tx};
use crate::{arena, generation, link, waiter};
use core::sync::atomic::Ordering::*;
use libc::{POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, pollfd};
use sidestep_conn::{Course, Phase};
use sidestep_ring::{side, space};
use sidestep_sys::{Errno, Result, arch, clock, fd as fdsys};

/// Longest sleep without a doorbell. Everything arrives by kernel then, unless the peer began a stretch at the very moment when
/// this side gave up rings.
const NO_BELL_US: u64 = 500_000;

/// What the call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Want {
    In,
    Out,
}

/// The socket of a wait.
#[derive(Clone, Copy)]
pub struct Number {
    fd: i32,
    /// The connection outlives the descriptor: closing it does not end the wait ([`arena::number`]).
    kept: Option<u32>,
}

impl Number {
    pub fn of(fd: i32) -> Number {
        Number { fd, kept: None }
    }

    pub fn kept(fd: i32, index: u32) -> Number {
        Number { fd, kept: Some(index) }
    }

    fn now(self) -> i32 {
        self.kept.map_or(self.fd, |index| arena::number(index, self.fd))
    }

    fn is_closed(self) -> bool {
        self.kept.is_some_and(|index| fdtable::get(self.fd) != Kind::Conn(index))
    }
}

/// All waits of one call.
pub struct Pause {
    timeout_us: u64,
    deadline: Option<Deadline>,
    /// Whether the call restarts after a handler with SA_RESTART.
    restarts: bool,
    /// The last pause ended by a look. Unless bytes have moved since, the next one sleeps.
    looked: bool,
    moved: usize,
    /// Made by the first wait. It holds signals back.
    quiet: Option<Quiet>,
    /// Whether its sleeps are no cancellation points.
    is_steady: bool,
    patience: Patience,
    /// Whether the socket does not block, as was found before the first sleep: the program has set that past the library.
    is_nonblocking: Option<bool>,
}

impl Pause {
    /// `timeout_us`: for all waits together; 0: none.
    pub fn new(timeout_us: u64) -> Pause {
        Pause {
            timeout_us,
            deadline: None,
            restarts: true,
            looked: false,
            moved: 0,
            quiet: None,
            is_steady: false,
            patience: Patience::default(),
            is_nonblocking: None,
        }
    }

    /// As [`Pause::new`], for waits in the middle of a change, which cancelling the thread must not leave half done.
    pub fn steady(timeout_us: u64) -> Pause {
        Pause { is_steady: true, ..Pause::new(timeout_us) }
    }

    /// Whether the call has failed with EAGAIN since its socket does not block, which the library had not seen.
    pub fn was_past_us(&self) -> bool {
        self.is_nonblocking == Some(true)
    }

    /// The call has moved this many bytes so far; if it is interrupted, it returns that number.
    pub fn has_moved(&mut self, moved: usize) {
        self.restarts = moved == 0 && self.timeout_us == 0;
        self.looked &= moved == self.moved;
        self.moved = moved;
    }

    /// Waits until another look at the connection is worth it. EAGAIN: the time is up; EINTR: a signal handler ran; EBADF: the
    /// connection was closed meanwhile.
    pub fn pause(&mut self, c: &Conn, number: Number, want: Want) -> Result<()> {
        let limit = (self.timeout_us > 0).then_some(self.timeout_us.saturating_mul(1000));
        let deadline = self.deadline.get_or_insert_with(|| Deadline::after_ns(limit));
        let generation = c.phase.generation();
        let may_look = !self.looked;
        self.looked = may_look && seems_ready(c, want);
        if self.looked {
            return Ok(());
        }
        let is_steady = self.is_steady;
        let begin = || if is_steady { Quiet::steady() } else { Quiet::begin(core::ptr::null()) };
        let quiet = self.quiet.get_or_insert_with(begin);
        let began = arch::ticks();
        self.looked = may_look && c.spin.wait(|| seems_ready(c, want) || quiet.is_disturbed()) && seems_ready(c, want);
        if self.looked {
            return Ok(());
        }
        if number.kept.is_some() && *self.is_nonblocking.get_or_insert_with(|| c.is_nonblocking_unseen(number.now())) {
            return Err(Errno(libc::EAGAIN));
        }
        let result = sleep(c, number, want, deadline, &mut self.patience, (self.restarts, quiet));
        c.spin.waited(arch::ticks() - began);
        let (now, phase) = c.phase.now();
        if now != generation || matches!(phase, Phase::Closed | Phase::Free) {
            return Err(Errno(libc::EBADF));
        }
        match result {
            // ENOMEM is no valid result of the program's call, so try again in a while.
            Err(Errno(libc::ENOMEM)) => {
                clock::nap_us(UNKNOWN_BELL_US);
                Ok(())
            }
            // The handler may have closed the descriptor.
            Err(signals::RESTART) if number.is_closed() => Err(Errno(libc::EBADF)),
            Err(signals::RESTART) => Ok(()),
            // Bytes that arrived in time count, however late the look.
            Ok(()) if deadline.has_passed() && !has_come(c, number.now(), want) => Err(Errno(libc::EAGAIN)),
            other => other,
        }
    }
}

/// Whether the call can go on, by any carrier.
fn has_come(c: &Conn, fd: i32, want: Want) -> bool {
    let wanted = match want {
        Want::In => readiness::IN,
        Want::Out => readiness::OUT,
    };
    if c.is_attached() {
        return readiness::events(c, fd, wanted) != 0;
    }
    fdsys::poll_now(fd, wanted as i16) != 0 // native again since the call has begun
}

/// A look without locks, for spinning.
#[inline]
fn seems_ready(c: &Conn, want: Want) -> bool {
    if !c.is_attached() {
        return false;
    }
    match want {
        Want::In => readiness::ring_has_bytes(c) || c.rx_half().has_fin() || c.has(flag::HINT),
        Want::Out => c.course.is(Course::Ring) && !space::is_wished(c.tx_half().writer),
    }
}

fn sleep(
    c: &Conn,
    number: Number,
    want: Want,
    deadline: &Deadline,
    patience: &mut Patience,
    signals: (bool, &mut Quiet),
) -> Result<()> {
    if !c.is_attached() || arena::is_inherited(c) {
        // The connection is native again, or its doorbells are the parent's: everything comes by kernel.
        return kernel_wait(number.now(), -1, interest(c, want), deadline.left(Some(NO_BELL_US)), signals).map(drop);
    }
    let l = link::get(c.link.load(Relaxed));
    let generation = generation::get();
    let Some(p) = waiter::borrow(l) else {
        // No waiter is free: this direction goes to the kernel for good.
        return leave_to_kernel(c, number.now(), want, (deadline, patience.next_us()), signals);
    };
    let my_side = &c.words().side[c.my_side()];
    side::add_doorbell(my_side, p);
    let fd = number.now(); // from now on a change of the descriptor rings here
    waiter::arm(p);
    let result = if is_ready(c, want, fd) {
        Ok(())
    } else {
        let cap = match (l.knows(p), want) {
            (false, _) => Some(UNKNOWN_BELL_US),
            (true, Want::Out) if !readiness::is_kernels(c) => Some(due::STALLED_US),
            (true, Want::In) if c.course.is(Course::Unsent) && !readiness::is_kernels(c) => Some(due::STALLED_US),
            _ => None,
        };
        let said = kernel_wait(fd, waiter::doorbell(p), interest(c, want), deadline.left(cap), signals);
        said.and_then(|revents| {
            if revents & POLLNVAL != 0 && number.now() == fd {
                // Closed in this thread's own descriptor table only: CLOSE_RANGE_UNSHARE.
                return Err(Errno(libc::EBADF));
            }
            if readiness::is_hint(revents as u16 as u32) {
                c.raise(flag::HINT);
            }
            Ok(())
        })
    };
    if generation::get() != generation {
        return result; // in a child that a handler has made: waiter and doorbell are its parent's
    }
    waiter::disarm(p, false);
    side::remove_doorbell(my_side, p);
    waiter::poll_news(p, stretch::serve);
    waiter::release(p);
    result
}

#[cold]
fn leave_to_kernel(
    c: &Conn,
    fd: i32,
    want: Want,
    (deadline, cap_us): (&Deadline, u64),
    signals: (bool, &mut Quiet),
) -> Result<()> {
    leave::what_is_awaited(c, fd, (want == Want::In, want == Want::Out));
    let said = kernel_wait(fd, -1, interest(c, want), deadline.left(Some(cap_us)), signals);
    if c.is_attached() {
        kept::attend(c, fd); // nobody could ring for the other direction meanwhile
    }
    said.map(drop)
}

/// A look under the locks, after the doorbell is armed.
fn is_ready(c: &Conn, want: Want, fd: i32) -> bool {
    if !c.is_attached() {
        return true;
    }
    kept::attend(c, fd);
    match want {
        Want::In => c.with_rx(|rx| readiness::has_bytes(c, rx)).unwrap_or(true),
        Want::Out => c.with_tx(|end| tx::offers_space(c, end, fd)).is_ok_and(|s| s == Some(true)),
    }
}

/// The events to wait for on the kernel socket.
fn interest(c: &Conn, want: Want) -> i16 {
    let wanted = match want {
        Want::In => POLLIN,
        Want::Out if !readiness::is_kernels(c) => POLLRDHUP,
        Want::Out => POLLOUT,
    };
    wanted | readiness::for_unsent(c)
}

/// Sleeps on the socket and on the doorbell.
fn kernel_wait(
    fd: i32,
    doorbell: i32,
    events: i16,
    left: Option<libc::timespec>,
    (restarts, quiet): (bool, &mut Quiet),
) -> Result<i16> {
    let none = pollfd { fd: -1, events: 0, revents: 0 };
    let mut fds = [pollfd { fd, events, revents: 0 }, pollfd { fd: doorbell, events: POLLIN, revents: 0 }, none];
    let result = signals::wait(&mut fds, &left, restarts, quiet);
    if fds[1].revents != 0 {
        fdsys::hush(doorbell);
    }
    result.map(|_| fds[0].revents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::stretch::tests::blocking;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    /// A thread that was blocked may get its processor only after the limit of its call has passed.
    #[test]
    fn bytes_that_have_come_by_kernel_count_however_late_the_look() {
        let (mine, mut theirs) = blocking();
        let index = arena::alloc().expect("a record");
        let (c, fd) = (arena::conn(index), mine.as_raw_fd());
        c.reset(0, arena::bit());
        assert!(!has_come(c, fd, Want::In) && has_come(c, fd, Want::Out));
        theirs.write_all(b"x").expect("a byte");
        assert_eq!(mine.peek(&mut [0; 2]).expect("the byte"), 1);
        assert!(has_come(c, fd, Want::In));
        arena::let_go(index);
    }
}
