//! The kernel's clock as a source of samples, on each processor.

use crate::meter::processors;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// A second and processor. Not a round number, so that it does not follow a program's own timer.
const FREQUENCY: u64 = 997;
/// Of samples that nobody has fetched yet, for each processor.
const BUFFER: usize = 1 << 20;

pub struct Clock(Vec<Sampler>);

pub struct Sample {
    /// As this PID namespace knows it.
    pub pid: u32,
    pub ip: u64,
    /// Of the kernel's stack, the innermost first.
    pub frames: Vec<u64>,
}

impl Sample {
    pub fn in_kernel(&self) -> bool {
        in_kernel(self.ip)
    }
}

/// Both x86-64 and ARM give the upper half of all addresses to the kernel.
fn in_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// Not an address in a stack, but a word on what follows: from here up.
const MARKS: u64 = -4095i64 as u64;

impl Clock {
    /// Ticking from now.
    pub fn open() -> Result<Clock, String> {
        let processors = processors().map_err(|why| format!("where CPU time goes cannot be sampled: {why}"))?;
        let samplers: std::io::Result<Vec<Sampler>> = processors.into_iter().map(sampler).collect();
        samplers.map(Clock).map_err(|why| {
            format!(
                "where CPU time goes cannot be sampled: the kernel's event cpu-clock: {why} (it needs root, or CAP_PERFMON \
                 and kernel.perf_event_paranoid=-1)"
            )
        })
    }

    /// Those since the last time. Idle processors, and processes outside of this PID namespace, have the number 0.
    pub fn fetch(&mut self) -> Result<Vec<Sample>, String> {
        let mut all = Vec::new();
        for sampler in &mut self.0 {
            while let Some(record) = sampler.next_record() {
                let record =
                    record.parse_record().map_err(|why| format!("a sample of cpu-clock cannot be read: {why}"))?;
                if let Record::Sample(sample) = record {
                    all.extend(read(&sample).filter(|sample| sample.pid > 0));
                }
            }
        }
        Ok(all)
    }
}

fn read(sample: &perf_event::data::Sample) -> Option<Sample> {
    let frames = sample.callchain().unwrap_or_default().iter().copied();
    let frames = frames.filter(|frame| in_kernel(*frame) && *frame < MARKS).collect();
    // The kernel's -1 for a task that is about to be gone.
    let pid = sample.pid().filter(|pid| i32::try_from(*pid).is_ok())?;
    Some(Sample { pid, ip: sample.ip()?, frames })
}

fn sampler(processor: usize) -> std::io::Result<Sampler> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder.any_pid().one_cpu(processor).include_kernel().exclude_idle(true).sample_frequency(FREQUENCY);
    // The last one only so that something follows the stack: an empty one at a record's end is what the parser cannot read.
    let fields = SampleFlag::IP | SampleFlag::TID | SampleFlag::CALLCHAIN | SampleFlag::DATA_SRC;
    builder.sample(fields).exclude_callchain_user(true);
    let mut sampler = builder.build()?.sampled(BUFFER)?;
    sampler.enable()?;
    Ok(sampler)
}
