//! The wait after a change of the table.

use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use std::fs::read_to_string;
use std::time::Duration;

/// More than any run of a program takes.
const LONG: Duration = Duration::from_millis(100);

/// Returns when every run of the device's program that began before the call has ended: from then on all frames are treated as
/// [`crate::Taken`] says. It may take milliseconds, so it belongs on a thread of its own; one call covers all changes before it.
///
/// A program runs in a soft interrupt, which nothing but a hard interrupt interrupts. So the thread visits each processor: where it
/// runs, no run is under way, and later ones see the table as it is. Where that is no proof (PREEMPT_RT), or the thread may not run
/// on each processor, it waits for an RCU grace period, which takes 10 to 150 ms: programs run under RCU.
pub fn wait_for_programs() {
    if is_realtime() || visit_all().is_err() {
        wait_for_rcu();
    }
}

/// Whether soft interrupts are threads that others preempt.
fn is_realtime() -> bool {
    read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1")
}

fn visit_all() -> rustix::io::Result<()> {
    let online = read_to_string("/sys/devices/system/cpu/online").ok().and_then(|text| listed(text.trim()));
    let (me, before) = (gettid(), sched_getaffinity(None)?);
    let result = online.ok_or(Errno::NOENT)?.into_iter().try_for_each(|processor| visit(me, processor));
    sched_setaffinity(None, &before)?;
    result
}

/// Returns on this processor. EINVAL: this process may not run there.
fn visit(me: Pid, processor: usize) -> rustix::io::Result<()> {
    let mut only = CpuSet::new();
    if processor >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    only.set(processor);
    sched_setaffinity(Some(me), &only)
}

/// The numbers of a list like `0-3,8`.
fn listed(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

/// On a machine with one processor membarrier(2) returns at once, and rightly so only for threads; where it is not allowed it fails.
/// There a sleep is long enough: a run takes microseconds.
fn wait_for_rcu() {
    // SAFETY: no memory is involved.
    let refused = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0;
    if refused || std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        std::thread::sleep(LONG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(listed("0"), Some(vec![0]));
        assert_eq!(listed("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!((listed(""), listed("0-x")), (None, None));
    }

    #[test]
    fn a_thread_has_visited_each_processor_and_may_run_where_it_did() {
        let before = sched_getaffinity(None).expect("the thread's processors");
        assert_eq!(visit_all(), Ok(()));
        assert_eq!(sched_getaffinity(None), Ok(before));
        assert_eq!(visit(gettid(), 1000), Err(Errno::INVAL), "there is none");
    }
}
