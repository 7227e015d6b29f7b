//! Threads that compete for the processors, so that those of a run are preempted anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sidestep_posix::rng::Rng;

pub struct Load {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn new(threads: usize) -> Load {
        let ends = Arc::new(AtomicBool::new(false));
        let one = |number| {
            let ends = ends.clone();
            thread::spawn(move || compete(&ends, number as u64))
        };
        Load { threads: (0..threads).map(one).collect(), ends }
    }
}

/// Works and sleeps for some milliseconds each, in turn.
fn compete(ends: &AtomicBool, number: u64) {
    let mut rng = Rng::new(number);
    while !ends.load(Relaxed) {
        let until = Instant::now() + Duration::from_micros(rng.below(8000));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        thread::sleep(Duration::from_micros(rng.below(3000)));
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("it only spins"));
    }
}
