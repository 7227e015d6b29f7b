//! One blocking call on one connection.

use super::signals::{self, Quiet};
use super::{Deadline, Patience, UNKNOWN_BELL_US, blocked, readiness};
use crate::debts::{self, Debt};
use crate::fdtable::{self, Kind};
use crate::record::{self, Conn, flag, state};
use crate::{arena, io, life, link, place};
use core::sync::atomic::{Ordering::*, fence};
use libc::{POLLIN, POLLOUT, POLLRDHUP, pollfd};
use sidestep_abi::Reason;
use sidestep_ring::{side, space};
use sidestep_sys::{Errno, Result, arch, clock, fd as fdsys};

/// Without a doorbell everything arrives by kernel; this is only for a peer that began a stretch at the very moment we
/// gave up on them.
const NO_BELL_US: u64 = 500_000;

/// What the call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Want {
    In,
    Out,
}

/// A blocking call, which may have to wait several times before its time is up.
pub struct Blocking {
    timeout_us: u64,
    deadline: Option<Deadline>,
    /// Whether the call goes on after a handler with SA_RESTART.
    restarts: bool,
    /// The last pause ended with a mere look; unless bytes moved since, the next one sleeps.
    looked: bool,
    moved: usize,
    /// Signals are held back from the first wait on.
    quiet: Option<Quiet>,
    /// The connection that this call keeps alive.
    keeps: Option<u32>,
    patience: Patience,
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
        Blocking {
            timeout_us,
            deadline: None,
            restarts: true,
            looked: false,
            moved: 0,
            quiet: None,
            keeps: None,
            patience: Patience::default(),
        }
    }

    /// As [`Blocking::pause`], for a call of the program, which closing the number meanwhile does not end
    /// ([`life::number`]). `moved`: bytes that the call has moved already, and will return if interrupted.
    pub fn until(&mut self, index: u32, c: &Conn, fd: i32, want: Want, moved: usize) -> Result<()> {
        if self.timeout_us == record::NO_WAIT {
            return Err(Errno(libc::EAGAIN));
        }
        self.restarts = moved == 0 && self.timeout_us == 0;
        self.looked &= moved == self.moved;
        self.moved = moved;
        if self.keeps.is_none() {
            debts::settle();
            keep(index, fd)?;
            self.keeps = Some(index);
        }
        self.pause(c, fd, want)
    }

    /// Waits until it is worth looking at the connection again. EAGAIN: time is up; EINTR: a signal handler ran;
    /// EBADF: the connection was closed meanwhile.
    pub fn pause(&mut self, c: &Conn, fd: i32, want: Want) -> Result<()> {
        let limit = (self.timeout_us > 0).then_some(self.timeout_us * 1000);
        let deadline = self.deadline.get_or_insert_with(|| Deadline::after_ns(limit));
        let generation = c.generation.load(Acquire);
        let may_look = !self.looked;
        self.looked = may_look && looks_ready(c, want);
        if self.looked {
            return Ok(());
        }
        let quiet = self.quiet.get_or_insert_with(|| Quiet::begin(core::ptr::null()));
        let began = arch::ticks();
        self.looked = may_look && c.spin.wait(|| looks_ready(c, want) || quiet.is_disturbed()) && looks_ready(c, want);
        if self.looked {
            return Ok(());
        }
        let number = || self.keeps.map_or(fd, |index| life::number(index, fd));
        let result = sleep(c, number, want, deadline, &mut self.patience, (self.restarts, quiet));
        c.spin.waited(arch::ticks() - began);
        if c.generation.load(Acquire) != generation || c.state.load(Acquire) == state::CLOSED {
            return Err(Errno(libc::EBADF));
        }
        match result {
            // No answer that a call on a socket could give: look again, and again in a while.
            Err(Errno(libc::ENOMEM)) => {
                clock::nap_us(UNKNOWN_BELL_US);
                Ok(())
            }
            // The number may have been closed, by the handler perhaps.
            Err(signals::RESTART) => match self.keeps {
                Some(index) if fdtable::get(fd) != Kind::Conn(index) => Err(Errno(libc::EBADF)),
                _ => Ok(()),
            },
            // What has come in time is taken, however late we look.
            Ok(()) if deadline.has_passed() && !has_come(c, number(), want) => Err(Errno(libc::EAGAIN)),
            other => other,
        }
    }
}

/// Whether the call can go on, by whatever carrier.
fn has_come(c: &Conn, fd: i32, want: Want) -> bool {
    let wanted = match want {
        Want::In => readiness::IN,
        Want::Out => readiness::OUT,
    };
    c.is_attached() && readiness::events(c, fd, wanted) != 0
}

/// Makes the connection outlive its number until [`let_go`]. EBADF: the number is just being closed.
fn keep(index: u32, fd: i32) -> Result<()> {
    let local = arena::local(index);
    blocked::enter(index);
    debts::owe(Debt::Connection(index));
    // SYNC waiter
    fence(SeqCst);
    if fdtable::get(fd) == Kind::Conn(index) || local.orphan.load(SeqCst) != 0 {
        return Ok(());
    }
    let_go(index);
    Err(Errno(libc::EBADF))
}

pub fn let_go(index: u32) {
    debts::paid(Debt::Connection(index));
    blocked::leave(index);
    if arena::local(index).orphan.load(SeqCst) != 0 {
        life::orphan_done(index);
    }
}

/// A look without locks, for spinning.
#[inline]
fn looks_ready(c: &Conn, want: Want) -> bool {
    if !c.is_attached() {
        return false;
    }
    match want {
        Want::In => readiness::ring_has_bytes(c) || c.rx_half().has_fin() || c.has(flag::HINT),
        Want::Out => c.has(flag::TX_RING) && !space::is_wished(c.tx_half().writer),
    }
}

/// `number`: of the socket; another one once the program has closed the first ([`life::number`]).
fn sleep(
    c: &Conn,
    number: impl Fn() -> i32,
    want: Want,
    deadline: &Deadline,
    patience: &mut Patience,
    signals: (bool, &mut Quiet),
) -> Result<()> {
    if !c.is_attached() || io::is_inherited(c) {
        // Native again, or its doorbells are another process's: all comes by kernel.
        return kernel_wait(number(), -1, interest(c, want), deadline.left(Some(NO_BELL_US)), signals).map(drop);
    }
    let l = link::get(c.link.load(Relaxed));
    let Some(p) = place::borrow(l) else {
        // No doorbell left: what we wait for must come by kernel, for good.
        return leave_to_kernel(c, number(), want, (deadline, patience.next_us()), signals);
    };
    let my_side = &c.words().side[c.my_side()];
    side::add_doorbell(my_side, p);
    let fd = number(); // from now on a change of it rings here
    place::doze(p);
    let result = if is_ready(c, want, fd) {
        Ok(())
    } else {
        let cap = match (l.knows(p), want) {
            (false, _) => Some(UNKNOWN_BELL_US),
            (true, Want::Out) if c.has(flag::TX_RING) => Some(io::send::STALLED_US),
            _ => None,
        };
        let said = kernel_wait(fd, place::doorbell(p), interest(c, want), deadline.left(cap), signals);
        said.map(|revents| {
            if readiness::is_hint(revents as u16 as u32) {
                c.raise(flag::HINT);
            }
        })
    };
    place::rise(p, false);
    side::remove_doorbell(my_side, p);
    place::take_news(p, io::send::serve);
    place::release(p);
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
    match want {
        Want::In => life::rx_to_kernel(c, Reason::Places),
        Want::Out => io::send::leave_ring(c, fd, Reason::Places),
    }
    let said = kernel_wait(fd, -1, interest(c, want), deadline.left(Some(cap_us)), signals);
    if c.is_attached() {
        io::send::attend(c, fd); // nobody could ring for the other direction
    }
    said.map(drop)
}

/// A look under the locks, after the doorbell is armed.
fn is_ready(c: &Conn, want: Want, fd: i32) -> bool {
    if !c.is_attached() {
        return true;
    }
    io::send::attend(c, fd);
    match want {
        Want::In => c.with_rx(|rx| readiness::has_bytes(c, rx)).unwrap_or(true),
        Want::Out => c.with_tx(|end| io::send::offers_space(c, end, fd)).is_ok_and(|s| s == Some(true)),
    }
}

/// What to ask of the kernel socket.
fn interest(c: &Conn, want: Want) -> i16 {
    let wanted = match want {
        Want::In => POLLIN,
        Want::Out if c.has(flag::TX_RING) => POLLRDHUP,
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
