//! Timeouts of calls, with the kernel's checks.

use crate::user;
use core::ffi::{c_int, c_long};
use libc::{timespec, timeval};
use sidestep_sys::{Errno, Result};

const SECOND: u64 = 1_000_000_000;

/// Timeout of poll(2) and epoll_wait(2) in nanoseconds. None: no limit.
pub fn from_ms(ms: c_int) -> Option<u64> {
    u64::try_from(ms).ok().map(|ms| ms * 1_000_000)
}

/// A time in nanoseconds, or u64::MAX if it is longer. EINVAL: not a valid time.
fn valid(seconds: c_long, nanoseconds: c_long) -> Result<u64> {
    if seconds < 0 || !(0..SECOND as c_long).contains(&nanoseconds) {
        return Err(Errno(libc::EINVAL));
    }
    Ok((seconds as u64).saturating_mul(SECOND).saturating_add(nanoseconds as u64))
}

/// A timeout in nanoseconds. EFAULT, EINVAL: the kernel refuses it.
pub fn nanoseconds(ts: *const timespec) -> Result<u64> {
    let ts = user::read(ts)?;
    valid(ts.tv_sec, ts.tv_nsec)
}

/// As [`nanoseconds`]; null: None, no limit.
pub fn from_spec(ts: *const timespec) -> Result<Option<u64>> {
    if ts.is_null() { Ok(None) } else { nanoseconds(ts).map(Some) }
}

/// Timeout of select(2); null: None, no limit. Microseconds may exceed a second. libc refuses a negative field; the kernel,
/// through syscall(), refuses only a negative sum.
pub fn from_val(tv: *const timeval, by_libc: bool) -> Result<Option<u64>> {
    if tv.is_null() {
        return Ok(None);
    }
    let tv = user::read(tv)?;
    if by_libc && (tv.tv_sec < 0 || tv.tv_usec < 0) {
        return Err(Errno(libc::EINVAL));
    }
    let seconds = tv.tv_sec.saturating_add(tv.tv_usec / 1_000_000);
    valid(seconds, tv.tv_usec % 1_000_000 * 1000).map(Some)
}

/// Writes back the time that is left of a call that began at `began`; nothing if the call has no timeout. A bad pointer is no
/// error, as in the kernel.
pub struct Left {
    ns: Option<u64>,
    began: u64,
}

impl Left {
    pub fn of(ns: Option<u64>) -> Left {
        let ns = ns.filter(|ns| *ns > 0);
        Left { ns, began: if ns.is_some() { sidestep_sys::clock::monotonic_ns() } else { 0 } }
    }

    fn now(&self) -> Option<u64> {
        self.ns.map(|ns| ns.saturating_sub(sidestep_sys::clock::monotonic_ns() - self.began))
    }

    /// # Safety
    /// The program's own place for it.
    pub unsafe fn tell_spec(&self, to: *mut timespec) {
        if let Some(ns) = self.now() {
            let left = timespec { tv_sec: (ns / SECOND) as i64, tv_nsec: (ns % SECOND) as i64 };
            // SAFETY: by contract.
            let _ = unsafe { user::write(to, left) };
        }
    }

    /// # Safety
    /// As for [`Left::tell_spec`].
    pub unsafe fn tell_val(&self, to: *mut timeval) {
        if let Some(ns) = self.now() {
            let left = timeval { tv_sec: (ns / SECOND) as i64, tv_usec: (ns % SECOND / 1000) as i64 };
            // SAFETY: by contract.
            let _ = unsafe { user::write(to, left) };
        }
    }
}
