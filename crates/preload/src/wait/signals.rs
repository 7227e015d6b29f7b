//! Whether an interrupted call restarts.
//!
//! recv(2) and send(2) restart after a handler installed with SA_RESTART and fail with EINTR after any other;
//! poll(2), which we sleep in, always fails. As long as every handler of the program asks for a restart the answer
//! is simple. Otherwise we sleep with all signals blocked and a signalfd in the list: what is pending can be asked
//! for, its handler's flags too, and only then is it let through.

use super::as_ptr;
use crate::{errno, fdtable, next, nudge};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use libc::pollfd;
use sidestep_sys::{Errno, Result, fd as fdsys, process};

/// The program has, or had, a handler.
static HANDLERS: AtomicBool = AtomicBool::new(false);
/// ... and one without SA_RESTART.
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

/// A wait that is made of looking, spinning and sleeping must be interrupted by a signal as if it were one system
/// call: signals are held back while it lasts, and let through only inside the sleep.
pub struct Quiet(Option<u64>);

/// Not held back: the two that libc keeps for itself, for cancellation and setuid.
const HELD: u64 = !(0b11 << 31);

impl Quiet {
    pub fn begin() -> Quiet {
        Quiet(HANDLERS.load(Relaxed).then(|| process::block_signals(HELD)))
    }

    /// The mask for the sleep: the program's own for this call, or the one it runs with.
    pub fn mask(&self, given: *const libc::sigset_t) -> *const libc::sigset_t {
        match &self.0 {
            Some(old) if given.is_null() => (&raw const *old).cast(), // the kernel reads eight bytes
            _ => given,
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(old) = self.0 {
            process::block_signals(old);
        }
    }
}

/// Taken before a sleep: tells afterwards whether only our own signal ([`nudge`]) can have interrupted it, of which the
/// program must not hear. With a handler of the program's it may have been that one.
pub struct Sleep(u32);

impl Sleep {
    pub fn begins() -> Sleep {
        Sleep(nudge::count())
    }

    /// What the sleep came to, without our own signal.
    pub fn ended(&self, result: Result<usize>) -> Result<usize> {
        let ours = result == Err(Errno(libc::EINTR)) && nudge::count() != self.0 && !HANDLERS.load(Relaxed);
        if ours { Ok(0) } else { result }
    }
}

/// ppoll(2) on behalf of another call: EINTR only if that call would fail with it. `restarts`: it would go on after
/// a handler with SA_RESTART, because it has neither a timeout nor moved anything yet. The last entry of the list is
/// ours to use.
pub fn wait(fds: &mut [pollfd], left: &Option<libc::timespec>, restarts: bool, quiet: &Quiet) -> Result<usize> {
    if restarts
        && MIXED.load(Relaxed)
        && let (Some(signals), Some(before)) = (signalfd(), quiet.0)
    {
        return wait_blocked(fds, signals, left, before);
    }
    let n = fds.len() - 1;
    match sleep(&mut fds[..n], left, quiet.mask(core::ptr::null())) {
        Err(Errno(libc::EINTR)) if restarts && !MIXED.load(Relaxed) => Ok(0),
        other => other,
    }
}

/// Through libc, because it is a cancellation point.
fn sleep(fds: &mut [pollfd], left: &Option<libc::timespec>, mask: *const libc::sigset_t) -> Result<usize> {
    let sleep = Sleep::begins();
    // SAFETY: the list, the timespec and the mask (or null) are alive.
    sleep.ended(errno::take(unsafe { next::ppoll(fds.as_mut_ptr(), fds.len() as u64, as_ptr(left), mask) } as isize))
}

/// Signals stay held back during the sleep too; what arrives is looked at first, and then let through.
fn wait_blocked(fds: &mut [pollfd], signals: i32, left: &Option<libc::timespec>, before: u64) -> Result<usize> {
    let last = fds.len() - 1;
    fds[last] = pollfd { fd: signals, events: libc::POLLIN, revents: 0 };
    let result = sleep(fds, left, core::ptr::null());
    let pending = process::pending_signals() & !before;
    if pending != 0 {
        let interrupts = process::interrupts(pending);
        process::block_signals(before); // the handlers run here
        process::block_signals(HELD);
        if interrupts {
            return Err(Errno(libc::EINTR));
        }
    }
    result
}

fn signalfd() -> Option<i32> {
    let known = SIGNALFD.load(Acquire);
    if known >= 0 {
        return Some(known);
    }
    let new = fdsys::signalfd().ok()?;
    fdtable::set(new, fdtable::Kind::Own);
    if let Err(other) = SIGNALFD.compare_exchange(-1, new, AcqRel, Acquire) {
        crate::link::drop_own(new);
        return Some(other);
    }
    Some(new)
}
