//! CPU time and the clock.

use std::time::{Duration, Instant};

/// User and system time that this process has used.
pub fn used() -> Duration {
    // SAFETY: all-zero is a valid rusage, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Runs `work`; returns how long it took and how much CPU time it used.
pub fn measure(work: impl FnOnce()) -> (Duration, Duration) {
    let (clock, cpu) = (Instant::now(), used());
    work();
    (clock.elapsed(), used() - cpu)
}

/// Waits until `done` says so; panics with `what` after ten seconds.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sleeps for so many milliseconds.
pub fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
