//! Samples where the CPU time of a set-up's processes goes while a load runs, without another tool.
//!
//! The kernel's event `cpu-clock` also works on virtual machines, which have no hardware counters.

mod clock;
mod code;
mod error;
mod symbols;

use crate::meter::{Account, members};
use crate::result::ProcessProfile;
use clock::{Clock, Sample};
use code::{Code, Place};
pub use error::ProfileError;
use indexmap::IndexMap;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use symbols::Symbols;

/// Interval between fetches of samples. A process that lives only between two of them is not seen.
const FETCH: Duration = Duration::from_millis(20);

/// Checks whether sampling is permitted, before anything is started.
pub fn allowed() -> Result<(), ProfileError> {
    Clock::open().map(drop)
}

/// Takes samples until `end`, or until it is dropped.
pub struct Sampler {
    alive: Sender<()>,
    watcher: JoinHandle<Result<Counted, ProfileError>>,
}

type Counted = IndexMap<String, ProcessProfile>;

impl Sampler {
    /// Samples these processes, by the scenario's names.
    pub fn begin(processes: IndexMap<String, Account>) -> Result<Sampler, ProfileError> {
        let (clock, symbols) = (Clock::open()?, Symbols::of_kernel());
        let (alive, over) = channel();
        let counter = Counter::new(processes, symbols);
        Ok(Sampler { alive, watcher: thread::spawn(move || watch(clock, counter, &over)) })
    }

    pub fn end(self) -> Result<IndexMap<String, ProcessProfile>, ProfileError> {
        drop(self.alive);
        self.watcher.join().map_err(|_| ProfileError::Panicked)?
    }
}

fn watch(mut clock: Clock, mut counter: Counter, over: &Receiver<()>) -> Result<Counted, ProfileError> {
    loop {
        let ended = over.recv_timeout(FETCH) != Err(RecvTimeoutError::Timeout);
        counter.count(&clock.fetch()?);
        if ended {
            return Ok(counter.counted);
        }
    }
}

/// Assigns samples to processes and places.
struct Counter {
    processes: IndexMap<String, Account>,
    symbols: Symbols,
    counted: Counted,
    known: HashMap<u32, Known>,
}

struct Known {
    name: String,
    code: Code,
}

impl Counter {
    fn new(processes: IndexMap<String, Account>, symbols: Symbols) -> Counter {
        let counted = processes.keys().map(|name| (name.clone(), ProcessProfile::default())).collect();
        Counter { processes, symbols, counted, known: HashMap::new() }
    }

    fn count(&mut self, samples: &[Sample]) {
        if samples.iter().any(|sample| !self.known.contains_key(&sample.pid)) {
            self.meet();
        }
        for sample in samples {
            let Some(Known { name, code }) = self.known.get_mut(&sample.pid) else { continue };
            let counted = self.counted.entry(name.clone()).or_default();
            counted.samples += 1;
            if sample.in_kernel() {
                counted.kernel += 1;
                for call in self.symbols.calls(&sample.frames) {
                    *counted.calls.entry(call.into()).or_default() += 1;
                }
            } else {
                match code.place(sample.pid, sample.ip) {
                    Place::Own => counted.own += 1,
                    Place::Library(file) => *counted.libraries.entry(file).or_default() += 1,
                    Place::Unknown => {}
                }
            }
        }
    }

    /// Looks for new processes, such as the load and what it starts.
    fn meet(&mut self) {
        for (name, pids) in members(&self.processes) {
            for pid in pids {
                self.known.entry(pid).or_insert_with(|| Known { name: name.clone(), code: Code::default() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a program that never calls the kernel with one that does little else.
    #[test]
    fn own_code_is_told_from_the_kernels() {
        let start = |words: &[&str]| {
            let command =
                std::process::Command::new(words[0]).args(&words[1..]).stderr(std::process::Stdio::null()).spawn();
            command.expect(words[0])
        };
        let mut burner = start(&["sh", "-c", "while :; do :; done"]);
        let mut reader = start(&["dd", "if=/dev/zero", "of=/dev/null", "bs=1M"]);
        let tree = |child: &std::process::Child| Account::Tree(child.id());
        let both = [("burner".to_string(), tree(&burner)), ("reader".to_string(), tree(&reader))];
        let sampler = Sampler::begin(both.into_iter().collect()).expect("root may sample");
        thread::sleep(Duration::from_secs(2));
        let counted = sampler.end().expect("samples");
        for child in [&mut burner, &mut reader] {
            child.kill().expect("it runs");
            child.wait().expect("it has ended");
        }
        let (burner, reader) = (&counted["burner"], &counted["reader"]);
        assert!(burner.samples > 20 && reader.samples > 20, "{counted:?}");
        let libraries: u64 = burner.libraries.values().sum();
        assert!(burner.own + libraries > burner.samples * 3 / 4 && burner.own > libraries, "{burner:?}");
        assert!(reader.kernel > reader.samples * 3 / 4, "{reader:?}");
    }
}
