//! The wait after a change of the table.

use std::time::Duration;

/// More than any run of a program takes.
const LONG: Duration = Duration::from_millis(100);

/// Returns when every run of the device's program that began before the call has ended: from then on all frames are treated as
/// [`crate::Taken`] says. It takes 10 to 150 ms, so it belongs on a thread of its own; one call covers all changes before it.
///
/// Programs run under RCU, and membarrier(2) waits for an RCU grace period. On a machine with one processor it returns at once,
/// and rightly so only for threads; where it is not allowed it fails. There a sleep is long enough: a run takes microseconds.
pub fn wait_for_programs() {
    // SAFETY: no memory is involved.
    let refused = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0;
    if refused || std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        std::thread::sleep(LONG);
    }
}
