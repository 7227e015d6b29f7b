//! Samples by the kernel's clock event, on each processor.

use super::error::ProfileError;
use crate::meter::processors;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// Samples a second for each processor. Not a round number, so that the samples do not follow a program's timer.
const FREQUENCY: u64 = 997;
/// Size of each processor's buffer for samples that have not been fetched yet.
const BUFFER: usize = 1 << 20;

pub struct Clock(Vec<Sampler>);

pub struct Sample {
    /// In this PID namespace.
    pub pid: u32,
    pub ip: u64,
    /// The kernel stack, innermost frame first.
    pub frames: Vec<u64>,
}

impl Sample {
    pub fn in_kernel(&self) -> bool {
        in_kernel(self.ip)
    }
}

/// On x86-64 and ARM the upper half of all addresses is the kernel's.
fn in_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// Values from here up are not addresses in a stack, but marks (PERF_CONTEXT_*).
const MARKS: u64 = -4095i64 as u64;

impl Clock {
    /// Starts sampling.
    pub fn open() -> Result<Clock, ProfileError> {
        let processors = processors().map_err(ProfileError::Processors)?;
        let samplers: std::io::Result<Vec<Sampler>> = processors.into_iter().map(sampler).collect();
        samplers.map(Clock).map_err(ProfileError::Clock)
    }

    /// All samples since the last call. Idle processors, and processes outside of this PID namespace, have pid 0.
    pub fn fetch(&mut self) -> Result<Vec<Sample>, ProfileError> {
        let mut all = Vec::new();
        for sampler in &mut self.0 {
            while let Some(record) = sampler.next_record() {
                let record = record.parse_record().map_err(ProfileError::Sample)?;
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
    // The kernel reports -1 for a task that is about to end.
    let pid = sample.pid().filter(|pid| i32::try_from(*pid).is_ok())?;
    Some(Sample { pid, ip: sample.ip()?, frames })
}

fn sampler(processor: usize) -> std::io::Result<Sampler> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder.any_pid().one_cpu(processor).include_kernel().exclude_idle(true).sample_frequency(FREQUENCY);
    // DATA_SRC is only there because the parser cannot read an empty stack at a record's end.
    let fields = SampleFlag::IP | SampleFlag::TID | SampleFlag::CALLCHAIN | SampleFlag::DATA_SRC;
    builder.sample(fields).exclude_callchain_user(true);
    let mut sampler = builder.build()?.sampled(BUFFER)?;
    sampler.enable()?;
    Ok(sampler)
}
