//! System calls of the whole machine, by the kernel's trace point for their entry.

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use std::fs;

/// Where tracefs may be.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// One counter a processor.
pub struct Calls(Vec<Counter>);

/// Why they cannot be counted: for a run's notes.
pub fn why_no_calls() -> Option<String> {
    Calls::open().err()
}

impl Calls {
    /// Counting from now.
    pub fn open() -> Result<Calls, String> {
        let point = Tracepoint::with_id(point()?);
        let online =
            fs::read_to_string("/sys/devices/system/cpu/online").map_err(|error| format!("system calls: {error}"))?;
        let counters: Result<_, _> = processors(&online).map(|processor| counter(point, processor)).collect();
        counters.map(Calls).map_err(|error| {
            format!("system calls cannot be counted: {error} (it needs CAP_PERFMON, or kernel.perf_event_paranoid=-1)")
        })
    }

    pub fn total(&mut self) -> Option<u64> {
        self.0.iter_mut().map(|counter| counter.read().ok()).sum()
    }
}

/// The number of the trace point.
fn point() -> Result<u64, String> {
    let read =
        |tracefs| fs::read_to_string(format!("{tracefs}/events/raw_syscalls/sys_enter/id")).ok()?.trim().parse().ok();
    let missing = "system calls cannot be counted: no trace point raw_syscalls:sys_enter (it needs root, tracefs at \
                   /sys/kernel/tracing, and CONFIG_FTRACE_SYSCALLS)";
    TRACEFS.into_iter().find_map(read).ok_or_else(|| missing.into())
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

    #[test]
    fn processors_that_are_online() {
        assert_eq!(processors("0-3,6\n").collect::<Vec<_>>(), [0, 1, 2, 3, 6]);
        assert_eq!(processors("0\n").collect::<Vec<_>>(), [0]);
    }
}
