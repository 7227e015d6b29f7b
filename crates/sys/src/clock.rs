//! Time. Reading ticks is free. The monotonic clock costs a system call, unless a libc reads it from the vDSO.

use crate::{TRIES, arch, call};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// libc's clock_gettime(2); null: unknown.
static BY_LIBC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// Uses libc's clock from now on, which needs no system call.
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

/// Nanoseconds of CLOCK_MONOTONIC. If the kernel refuses (a filter may forbid the call), derived from ticks: time must go on.
pub fn monotonic_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    if (0..TRIES).any(|_| gettime(&mut ts)) {
        ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
    } else {
        arch::ticks() / ticks_of_us(1) * 1000
    }
}

/// Ticks in a microsecond, on any existing processor.
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

/// Sleeps. False: a signal has ended that.
pub fn nap_us(us: u64) -> bool {
    let ts = libc::timespec { tv_sec: (us / 1_000_000) as i64, tv_nsec: (us % 1_000_000 * 1000) as i64 };
    // SAFETY: `ts` is alive; no remainder wanted.
    unsafe { call(libc::SYS_nanosleep, [&raw const ts as usize, 0, 0, 0, 0, 0]) }.is_ok()
}

/// A time at which something must be looked after. The next caller after that time does it.
pub struct Due(AtomicU64);

impl Due {
    /// Nothing is due.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Due {
        Due(AtomicU64::new(0))
    }

    /// Makes it due in `us` microseconds, unless it is due earlier.
    pub fn set(&self, us: u64) {
        let _ = self.0.compare_exchange(0, arch::ticks() + ticks_of_us(us), Relaxed, Relaxed);
    }

    /// Whether it is due, now or later.
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

    /// Makes nothing due any more. True: something was due, and the caller must handle it.
    pub fn claim(&self) -> bool {
        self.is_set() && self.0.swap(0, Relaxed) != 0
    }
}
