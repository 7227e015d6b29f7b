//! Metrics of the process, under the names that all of Prometheus' client libraries use.

use super::{Families, Labels};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs;

#[derive(Debug)]
pub struct Process;

/// What the kernel says of this process.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    /// Since the machine has started.
    start_ticks: u64,
    threads: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut families = Families(&mut encoder);
        let one = |value| std::iter::once((Labels::new(), value));
        if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(stat) {
            let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
            let cpu = "Processor time, of the process and of the kernel for it";
            families.float_counters("process_cpu_seconds", cpu, one_float(seconds(stat.cpu_ticks)))?;
            if let Some(booted) = fs::read_to_string("/proc/stat").ok().as_deref().and_then(booted) {
                let start = booted as f64 + seconds(stat.start_ticks);
                let help = "When the process has started, in seconds since 1970";
                families.float_gauges("process_start_time_seconds", help, one_float(start))?;
            }
            families.gauges("process_threads", "Threads", one(stat.threads))?;
            families.gauges("process_virtual_memory_bytes", "Address space", one(stat.virtual_bytes))?;
            let resident = stat.resident_pages * page_size() as u64;
            families.gauges("process_resident_memory_bytes", "Memory in use", one(resident))?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them is the directory itself.
            families.gauges("process_open_fds", "Open descriptors", one(open.count().saturating_sub(1) as u64))?;
        }
        let most = getrlimit(Resource::Nofile).current;
        families.gauges("process_max_fds", "Descriptors that the process may open", most.into_iter().flat_map(one))
    }
}

fn one_float<'a>(value: f64) -> impl Iterator<Item = (Labels<'a>, f64)> {
    std::iter::once((Labels::new(), value))
}

/// proc_pid_stat(5). The second field, the program's name in parentheses, may contain anything.
fn stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // The first of these is field 3 of the manual page.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        start_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

/// When the machine has started, in seconds since 1970.
fn booted(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_manual_page() {
        let text = "4711 (a) b) S 1 2 3 4 5 6 7 8 9 10 111 22 13 14 15 16 17 18 1900 20000 21 22\n";
        let expected =
            Stat { cpu_ticks: 133, threads: 17, start_ticks: 1900, virtual_bytes: 20000, resident_pages: 21 };
        assert_eq!(stat(text), Some(expected));
        assert_eq!(stat("4711 (a) S 1 2"), None);
        assert_eq!(booted("cpu 1 2\nbtime 1700000000\nprocesses 7\n"), Some(1_700_000_000));
    }
}
