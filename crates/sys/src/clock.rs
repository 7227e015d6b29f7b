//! Time. Ticks are free. The monotonic clock costs a system call, unless there is a libc that reads it from the vDSO.

use crate::{TRIES, arch, call};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// libc's clock_gettime(2); null: none is known.
static BY_LIBC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// From now on libc is asked, which needs no system call.
///
/// # Safety
/// It must be clock_gettime(2), and must never call back into this program.
pub unsafe fn ask_libc(clock_gettime: *mut c_void) {
    BY_LIBC.store(clock_gettime, Relaxed);
}

fn gettime(ts: &mut libc::timespec) -> bool {
    let by_libc = BY_LIBC.load(Relaxed);
    if !by_libc.is_null() {
        // SAFETY: by the contract of `ask_libc`; `ts` is valid for the write.
        return unsafe { core::mem::transmute::<*mut c_void, ClockGettime>(by_libc)(libc::CLOCK_MONOTONIC, ts) } == 0;
    }
    // SAFETY: `ts` is valid for the write.
    unsafe { call(libc::SYS_clock_gettime, [libc::CLOCK_MONOTONIC as usize, &raw mut *ts as usize, 0, 0, 0, 0]) }
        .is_ok()
}

/// Nanoseconds of CLOCK_MONOTONIC; of the ticks if the kernel does not tell (a filter may forbid it): time must go on.
pub fn monotonic_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    if (0..TRIES).any(|_| gettime(&mut ts)) {
        ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
    } else {
        arch::ticks() / ticks_of_us(1) * 1000
    }
}

/// Ticks a microsecond of any processor there is.
const PLAUSIBLE: core::ops::Range<u64> = 100..20_000;

static TICKS_PER_US: AtomicU64 = AtomicU64::new(0);

/// Measures the tick rate; takes about 100 us, the first time.
pub fn calibrate() {
    if TICKS_PER_US.load(Relaxed) != 0 {
        return;
    }
    let (t0, n0) = (arch::ticks(), monotonic_ns());
    let (mut ticks, mut ns) = (0, 0);
    while ns < 100_000 && ticks < PLAUSIBLE.end * 1000 {
        ns = monotonic_ns().saturating_sub(n0);
        ticks = arch::ticks() - t0;
    }
    // Without the kernel's clock the rate stays what is assumed.
    let rate = ticks * 1000 / ns.max(1);
    if PLAUSIBLE.contains(&rate) {
        TICKS_PER_US.store(rate, Relaxed);
    }
}

/// Ticks in this many microseconds. 2000 a microsecond until [`calibrate`] has run.
#[inline]
pub fn ticks_of_us(us: u64) -> u64 {
    let rate = TICKS_PER_US.load(Relaxed);
    us * if rate == 0 { 2000 } else { rate }
}

/// Sleeps.
pub fn nap_us(us: u64) {
    let ts = libc::timespec { tv_sec: (us / 1_000_000) as i64, tv_nsec: (us % 1_000_000 * 1000) as i64 };
    // SAFETY: `ts` is alive; no remainder wanted.
    let _ = unsafe { call(libc::SYS_nanosleep, [&raw const ts as usize, 0, 0, 0, 0, 0]) };
}

/// A time at which somebody has to look after something; whoever comes by then does.
pub struct Due(AtomicU64);

impl Due {
    /// Nothing is due.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Due {
        Due(AtomicU64::new(0))
    }

    /// In so many microseconds, if nothing is due earlier.
    pub fn set(&self, us: u64) {
        let _ = self.0.compare_exchange(0, arch::ticks() + ticks_of_us(us), Relaxed, Relaxed);
    }

    /// Whether something will be due, or is.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Whether something is due now.
    #[inline]
    pub fn has_come(&self) -> bool {
        let at = self.0.load(Relaxed);
        at != 0 && arch::ticks() >= at
    }

    /// Nothing is due from here on. True: something was, and the caller is the one to see to it.
    pub fn claim(&self) -> bool {
        self.is_set() && self.0.swap(0, Relaxed) != 0
    }
}
