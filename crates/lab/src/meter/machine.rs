//! The whole machine, from /proc/stat.
//!
//! Busy time is all time that is not idle, whoever used it. The kernel measures idle time exactly, but may only sample other time
//! at ticks, and a load that is synchronized with the clock hides between ticks.

use procfs::{CurrentSI, KernelStats};
use std::time::Instant;

pub struct Moment {
    at: Instant,
    /// None if there is no /proc.
    stats: Option<KernelStats>,
}

/// Values between two moments; in seconds of CPU, except `seconds`.
#[derive(Debug, Default, PartialEq)]
pub struct Passed {
    pub seconds: f64,
    /// Neither idle nor given to others by the hypervisor.
    pub busy: f64,
    pub softirq: f64,
    pub steal: f64,
    pub switches: u64,
}

impl Moment {
    pub fn now() -> Moment {
        Moment { stats: KernelStats::current().ok(), at: Instant::now() }
    }

    pub fn since(&self, before: &Moment) -> Passed {
        let seconds = (self.at - before.at).as_secs_f64();
        let stats = self.stats.as_ref().zip(before.stats.as_ref());
        stats.map_or(Passed { seconds, ..Passed::default() }, |(after, before)| passed(seconds, after, before))
    }
}

fn passed(seconds: f64, after: &KernelStats, before: &KernelStats) -> Passed {
    let ticks =
        |of: fn(&KernelStats) -> u64| of(after).saturating_sub(of(before)) as f64 / procfs::ticks_per_second() as f64;
    let steal = ticks(|stats| stats.total.steal.unwrap_or(0));
    let idle = ticks(|stats| stats.total.idle + stats.total.iowait.unwrap_or(0));
    Passed {
        seconds,
        busy: (seconds * after.cpu_time.len() as f64 - idle - steal).max(0.0),
        softirq: ticks(|stats| stats.total.softirq.unwrap_or(0)),
        steal,
        switches: after.ctxt.saturating_sub(before.ctxt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::{FromBufReadSI, current_system_info};

    fn stats(ticks: &str, switches: u64) -> KernelStats {
        let text =
            format!("cpu  {ticks}\ncpu0 {ticks}\ncpu1 0 0 0 0 0 0 0 0 0 0\nctxt {switches}\nbtime 1\nprocesses 1\n");
        KernelStats::from_buf_read(text.as_bytes(), current_system_info()).unwrap()
    }

    #[test]
    fn busy_is_what_was_neither_idle_nor_stolen() {
        let second = procfs::ticks_per_second();
        let after = format!("9 9 9 {} {second} 0 {second} {second} 0 0", 2 * second);
        let passed = passed(5.0, &stats(&after, 107), &stats("0 0 0 0 0 0 0 0 0 0", 100));
        assert_eq!(passed, Passed { seconds: 5.0, busy: 6.0, softirq: 1.0, steal: 1.0, switches: 7 });
    }
}
