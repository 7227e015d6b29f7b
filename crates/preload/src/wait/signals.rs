//! Whether an interrupted call restarts.
//!
//! recv(2) and send(2) restart after a handler with SA_RESTART, and fail with EINTR after any other handler. poll(2), in which
//! we sleep, always fails. If every handler of the program has SA_RESTART, the call restarts. Otherwise we sleep with all
//! signals blocked and with a signalfd in the list. Then the pending signal and the flags of its handler can be looked up
//! before the signal is unblocked.

use super::{NOW, as_ptr};
use crate::debts::{self, Debt};
use crate::faults::FAULTS;
use crate::stand_in::waits;
use crate::{errno, fdtable, handlers, next, thread};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use libc::pollfd;
use sidestep_sys::{Errno, Result, fd as fdsys, process, signal};

/// The program has, or had, a handler.
static HANDLERS: AtomicBool = AtomicBool::new(false);
/// ... and a handler without SA_RESTART.
static MIXED: AtomicBool = AtomicBool::new(false);
static SIGNALFD: AtomicI32 = AtomicI32::new(-1);

/// sigaction(2) installs a handler with these flags.
pub fn installed(signal: i32, handler: usize, flags: i32) {
    if handler > libc::SIG_IGN && !process::is_fault(signal) {
        HANDLERS.store(true, Relaxed);
        if flags & libc::SA_RESTART == 0 {
            MIXED.store(true, Relaxed);
        }
    }
}

/// A wait consists of looks, spins and sleeps, but a signal must interrupt it as if it were one system call. Handlers that run
/// before the sleep are counted. For the sleep signals are blocked, and unblocked only inside of it.
pub struct Quiet {
    /// The thread's own mask, while signals are held back.
    held: Option<u64>,
    /// Counts of handlers that had run when the wait began.
    before: (u32, u32),
    /// The sleep is no cancellation point: it is in the middle of a change that must not stay half done.
    is_steady: bool,
}

/// Signals that are held back: all but the two that libc keeps for cancellation and setuid, and those of faults, which a copy
/// may raise.
const HELD: u64 = !(0b11 << 31 | FAULTS);

impl Quiet {
    /// At the beginning of a wait. `mask`: the program's own for this wait, or null. Signals are held back at once if there is
    /// such a mask, since it may block a signal that is not blocked now; also if handlers cannot be counted.
    #[inline]
    pub fn begin(mask: *const libc::sigset_t) -> Quiet {
        let mut quiet = Quiet { held: None, before: thread::parts().handled.counts(), is_steady: false };
        if !mask.is_null() || !handlers::are_ours() {
            quiet.hold();
        }
        quiet
    }

    /// As [`Quiet::begin`] without a mask, for a wait of the library's own.
    pub fn steady() -> Quiet {
        let mut quiet = Quiet::begin(core::ptr::null());
        quiet.is_steady = true;
        quiet
    }

    /// Whether a handler has run since the wait began.
    #[inline]
    pub fn is_disturbed(&self) -> bool {
        thread::parts().handled.counts() != self.before
    }

    /// The error of a call that a handler has interrupted. `restarts`: whether the call restarts after a handler with
    /// SA_RESTART.
    fn interruption(&self, restarts: bool) -> Errno {
        let (_, breaking) = thread::parts().handled.counts();
        if restarts && breaking == self.before.1 { RESTART } else { Errno(libc::EINTR) }
    }

    /// Before the sleep: holds signals back. Err: a handler has run since the wait began.
    pub fn hold_back(&mut self, restarts: bool) -> Result<()> {
        self.hold();
        if !self.is_disturbed() {
            return Ok(());
        }
        let interruption = self.interruption(restarts);
        self.before = thread::parts().handled.counts();
        Err(interruption)
    }

    fn hold(&mut self) {
        if self.held.is_none() && HANDLERS.load(Relaxed) {
            self.held = Some(signal::block(HELD));
        }
    }

    /// The mask for the sleep: the program's own for this call, or the thread's.
    pub fn mask(&self, given: *const libc::sigset_t) -> *const libc::sigset_t {
        match &self.held {
            Some(old) if given.is_null() => (&raw const *old).cast(), // the kernel reads eight bytes
            _ => given,
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(old) = self.held {
            process::block_signals(old);
            thread::parts().faults.mask_changed(libc::SIG_SETMASK, old);
        }
    }
}

/// For a call without time to wait that has found nothing. EINTR: `mask`, the program's own for the call or null, has let a
/// pending signal through, and its handler has run.
pub fn let_signals_in(mask: *const libc::sigset_t) -> Result<()> {
    if mask.is_null() {
        return Ok(());
    }
    // SAFETY: an empty list; the timespec and the program's mask are alive during the call.
    let n = unsafe { next::ppoll(core::ptr::null_mut(), 0, as_ptr(&NOW), mask) };
    errno::check(n as isize).map(drop)
}

/// A handler has run, and the call begins anew (ERESTARTSYS of the kernel, which no program sees).
pub const RESTART: Errno = Errno(512);

/// ppoll(2) on behalf of another call. Fails with EINTR only if that call would, otherwise with [`RESTART`]. `restarts`: the
/// call restarts after a handler with SA_RESTART, because it has no timeout and has moved no byte yet. The last entry of the
/// list is free for this function.
pub fn wait(fds: &mut [pollfd], left: &Option<libc::timespec>, restarts: bool, quiet: &mut Quiet) -> Result<usize> {
    quiet.hold_back(restarts)?;
    let result = wait_held_back(fds, left, restarts, quiet);
    quiet.before = thread::parts().handled.counts(); // the result tells of handlers that ran during the sleep
    result
}

fn wait_held_back(fds: &mut [pollfd], left: &Option<libc::timespec>, restarts: bool, quiet: &Quiet) -> Result<usize> {
    if restarts
        && MIXED.load(Relaxed)
        && let (Some(all), Some(before)) = (signalfd(), quiet.held)
    {
        return wait_blocked(fds, all, left, (before, quiet.is_steady));
    }
    let n = fds.len() - 1;
    match sleep(&mut fds[..n], left, quiet.mask(core::ptr::null()), quiet.is_steady) {
        Err(Errno(libc::EINTR)) if restarts && !MIXED.load(Relaxed) => Err(RESTART),
        other => other,
    }
}

/// Calls libc, since this must be a cancellation point unless it `is_steady`.
fn sleep(
    fds: &mut [pollfd],
    left: &Option<libc::timespec>,
    mask: *const libc::sigset_t,
    is_steady: bool,
) -> Result<usize> {
    let (at, n, left) = (fds.as_mut_ptr(), fds.len() as u64, as_ptr(left));
    // SAFETY: the list, the timespec and the mask (or null) are alive.
    let n = unsafe { if is_steady { waits::ppoll(at, n, left, mask) } else { next::ppoll(at, n, left, mask) } };
    errno::check(n as isize)
}

/// Signals stay blocked during the sleep. A pending signal is looked up before it is unblocked. `all`: a signalfd for all
/// signals.
fn wait_blocked(
    fds: &mut [pollfd],
    all: i32,
    left: &Option<libc::timespec>,
    (before, is_steady): (u64, bool),
) -> Result<usize> {
    let last = fds.len() - 1;
    let mut result = sleep_beside(fds, all, left, is_steady);
    let mut pending = process::pending_signals() & !before;
    if pending == 0 && fds[last].revents != 0 {
        // A signal that the program itself blocks is pending, and would end every sleep until it is unblocked.
        result = sleep_beside_unblocked(fds, left, (before, is_steady));
        pending = process::pending_signals() & !before;
    }
    if pending != 0 {
        let interrupts = process::interrupts(pending);
        process::block_signals(before); // the handlers run here
        thread::parts().faults.mask_changed(libc::SIG_SETMASK, before);
        signal::block(HELD);
        if interrupts {
            return Err(Errno(libc::EINTR));
        }
        if result.is_ok_and(|n| n == 0 || fds[last].revents != 0) {
            return Err(RESTART);
        }
    }
    result
}

fn sleep_beside(fds: &mut [pollfd], signals: i32, left: &Option<libc::timespec>, is_steady: bool) -> Result<usize> {
    if let Some(last) = fds.last_mut() {
        *last = pollfd { fd: signals, events: libc::POLLIN, revents: 0 };
    }
    sleep(fds, left, core::ptr::null(), is_steady)
}

#[cold]
fn sleep_beside_unblocked(
    fds: &mut [pollfd],
    left: &Option<libc::timespec>,
    (before, is_steady): (u64, bool),
) -> Result<usize> {
    let Ok(signals) = fdsys::signalfd(!before) else {
        let fds = fds.split_last_mut().map_or(&mut [][..], |(_, others)| others);
        return sleep(fds, left, (&raw const before).cast(), is_steady); // as on a system without signalfd
    };
    fdtable::set(signals, fdtable::Kind::Own);
    debts::owe(Debt::descriptor(signals));
    let result = sleep_beside(fds, signals, left, is_steady);
    debts::paid(Debt::descriptor(signals));
    fdtable::drop_own(signals);
    result
}

/// A signalfd for all signals, shared by all threads.
fn signalfd() -> Option<i32> {
    let known = SIGNALFD.load(Acquire);
    if known >= 0 {
        return Some(known);
    }
    let new = fdsys::signalfd(u64::MAX).ok()?;
    fdtable::set(new, fdtable::Kind::Own);
    if let Err(other) = SIGNALFD.compare_exchange(-1, new, AcqRel, Acquire) {
        fdtable::drop_own(new);
        return Some(other);
    }
    Some(new)
}
