//! The wait after a change of the table.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::read_to_string;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::Duration;

/// More than any run of a program takes.
const LONG: Duration = Duration::from_millis(100);

/// Returns when every run of the device's program that began before the call has ended: from then on all frames are treated as
/// [`crate::Taken`] says. A frame that was diverted to the inlet before may still come a little later. The call may take milliseconds, so
/// it belongs on a thread of its own; one call covers all changes before it.
///
/// It waits for the first of two proofs. On an idle machine visits take half a millisecond and a grace period ten; on one where many
/// threads want to run, visits may take hundreds.
pub fn wait_for_programs() {
    let (proof, first) = channel();
    if !is_realtime() {
        let proof = proof.clone();
        let visits = move || visit_all().is_ok_and(|()| proof.send(()).is_ok());
        // If there is no thread, the other proof is enough.
        let _ = Builder::new().name("visits".into()).spawn(visits);
    }
    let waits = move || {
        wait_for_rcu();
        proof.send(())
    };
    match Builder::new().name("waits".into()).spawn(waits) {
        Ok(_) => drop(first.recv()),
        Err(_) => wait_for_rcu(),
    }
}

/// Whether soft interrupts are threads that others preempt.
fn is_realtime() -> bool {
    read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1")
}

/// Runs on each processor. A program runs in a soft interrupt, which nothing but a hard interrupt interrupts (PREEMPT_RT apart). So
/// where this thread runs no run is under way, and later ones see the table as it is. Err: the thread may not run on each processor.
/// It stays on the last one.
fn visit_all() -> rustix::io::Result<()> {
    let online = read_to_string("/sys/devices/system/cpu/online").ok().and_then(|text| listed(text.trim()));
    online.ok_or(Errno::NOENT)?.into_iter().try_for_each(visit)
}

/// Returns on this processor. EINVAL: this process may not run there.
fn visit(processor: usize) -> rustix::io::Result<()> {
    let mut only = CpuSet::new();
    if processor >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    only.set(processor);
    sched_setaffinity(None, &only)
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

/// Waits for an RCU grace period: programs run under RCU. On a machine with one processor membarrier(2) returns at once, and rightly
/// so only for threads; where it is not allowed it fails. There a sleep is long enough: a run takes microseconds.
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
    fn a_thread_visits_processors_that_are_there() {
        assert_eq!(visit_all(), Ok(()));
        assert_eq!(visit(1000), Err(Errno::INVAL), "there is none");
        wait_for_programs();
    }
}
