//! Whether the run should stop.

use super::order::STOP;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn asked(&self) -> bool {
        // No other memory depends on the flag.
        self.0.load(Ordering::Relaxed)
    }

    /// Watches the pipe from outside. If it closes, the process outside is gone, and this process ends everything at once.
    pub fn watch(pipe: impl BufRead + Send + 'static) -> Stop {
        let stop = Stop::default();
        let asked = stop.clone();
        std::thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                if line == STOP {
                    asked.0.store(true, Ordering::Relaxed);
                }
            }
            std::process::exit(GONE);
        });
        stop
    }
}

/// Exit status that nobody is left to see.
const GONE: i32 = 3;
