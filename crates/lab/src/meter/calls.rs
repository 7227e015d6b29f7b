//! Counts system calls of the whole machine by the kernel's tracepoint at their entry.

use super::processors::processors;
use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs::{self, File};
use std::io::Read;

/// Mount points of tracefs.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The file in tracefs with the tracepoint's number.
const POINT: &str = "events/raw_syscalls/sys_enter/id";

/// The file that lists online processors.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Why system calls cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    #[error("system calls cannot be counted: {ONLINE}: {0}")]
    Processors(#[source] std::io::Error),
    #[error("system calls cannot be counted: {0} (it needs CAP_PERFMON, or kernel.perf_event_paranoid=-1)")]
    Counter(#[source] std::io::Error),
    #[error(
        "system calls cannot be counted: no trace point raw_syscalls:sys_enter ({0}; it needs root, tracefs, and \
         CONFIG_FTRACE_SYSCALLS)"
    )]
    NoPoint(#[source] std::io::Error),
    #[error("system calls cannot be counted: {POINT} says {0:?}")]
    NotANumber(String),
}

/// One counter for each processor.
pub struct Calls(Vec<Counter>);

/// Why they cannot be counted, for the run's notes.
pub fn why_no_calls() -> Option<CallsError> {
    Calls::open().err()
}

impl Calls {
    /// Starts counting.
    pub fn open() -> Result<Calls, CallsError> {
        let point = Tracepoint::with_id(point()?);
        let processors = processors().map_err(CallsError::Processors)?;
        let counters: Result<_, _> = processors.into_iter().map(|processor| counter(point, processor)).collect();
        counters.map(Calls).map_err(CallsError::Counter)
    }

    pub fn total(&mut self) -> Option<u64> {
        self.0.iter_mut().map(|counter| counter.read().ok()).sum()
    }
}

/// The tracepoint's number.
fn point() -> Result<u64, CallsError> {
    let mounted = TRACEFS.into_iter().find_map(|tracefs| fs::read_to_string(format!("{tracefs}/{POINT}")).ok());
    let text = mounted.map_or_else(read_unmounted, Ok).map_err(CallsError::NoPoint)?;
    text.trim().parse().map_err(|_| CallsError::NotANumber(text))
}

/// Reads the file if tracefs is not mounted (as in containers): from a detached mount of our own, which ends with this function.
fn read_unmounted() -> std::io::Result<String> {
    let tracefs = tracefs()?;
    let point = rustix::fs::openat(&tracefs, POINT, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(point).read_to_string(&mut text)?;
    Ok(text)
}

fn tracefs() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

fn counter(point: Tracepoint, processor: usize) -> std::io::Result<Counter> {
    let mut builder = Builder::new(point);
    // The tracepoint is in the kernel.
    let mut counter = builder.any_pid().one_cpu(processor).include_kernel().build()?;
    counter.enable()?;
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests our own mount, whether tracefs is mounted or not.
    #[test]
    fn the_trace_point_is_found_without_a_mounted_tracefs() {
        let number: u64 = read_unmounted().unwrap().trim().parse().unwrap();
        assert_eq!(point().unwrap(), number);
    }
}
