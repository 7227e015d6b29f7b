//! System calls of the whole machine, by the kernel's trace point for their entry.

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs::{self, File};
use std::io::Read;

/// Where tracefs is mounted, if it is.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// In tracefs: the number of the trace point.
const POINT: &str = "events/raw_syscalls/sys_enter/id";

/// Which processors there are.
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

/// One counter a processor.
pub struct Calls(Vec<Counter>);

/// Why they cannot be counted: for a run's notes.
pub fn why_no_calls() -> Option<CallsError> {
    Calls::open().err()
}

impl Calls {
    /// Counting from now.
    pub fn open() -> Result<Calls, CallsError> {
        let point = Tracepoint::with_id(point()?);
        let online = fs::read_to_string(ONLINE).map_err(CallsError::Processors)?;
        let counters: Result<_, _> = processors(&online).map(|processor| counter(point, processor)).collect();
        counters.map(Calls).map_err(CallsError::Counter)
    }

    pub fn total(&mut self) -> Option<u64> {
        self.0.iter_mut().map(|counter| counter.read().ok()).sum()
    }
}

/// The number of the trace point.
fn point() -> Result<u64, CallsError> {
    let mounted = TRACEFS.into_iter().find_map(|tracefs| fs::read_to_string(format!("{tracefs}/{POINT}")).ok());
    let text = mounted.map_or_else(read_unmounted, Ok).map_err(CallsError::NoPoint)?;
    text.trim().parse().map_err(|_| CallsError::NotANumber(text))
}

/// The same where nobody has mounted tracefs (in a container, say): from a mount of our own that has no place in the file
/// system and ends with this function.
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
    // The trace point is in the kernel.
    let mut counter = builder.any_pid().one_cpu(processor).include_kernel().build()?;
    counter.enable()?;
    Ok(counter)
}

/// Of `0-3,6`.
fn processors(online: &str) -> impl Iterator<Item = usize> {
    online.trim().split(',').filter_map(range).flatten()
}

fn range(words: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let (first, last) = words.split_once('-').unwrap_or((words, words));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether tracefs is mounted or not: the mount of our own is there for those where it is not.
    #[test]
    fn the_trace_point_is_found_without_a_mounted_tracefs() {
        let number: u64 = read_unmounted().unwrap().trim().parse().unwrap();
        assert_eq!(point().unwrap(), number);
    }

    #[test]
    fn processors_that_are_online() {
        assert_eq!(processors("0-3,6\n").collect::<Vec<_>>(), [0, 1, 2, 3, 6]);
        assert_eq!(processors("0\n").collect::<Vec<_>>(), [0]);
    }
}
