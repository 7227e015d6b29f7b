//! Whether to go on.

use super::order::STOP;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn asked(&self) -> bool {
        // Nothing else depends on when it is seen.
        self.0.load(Ordering::Relaxed)
    }

    /// Watches the pipe from outside. When it closes outside is gone, and with this process everything ends at once.
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

/// Nobody is there to see it.
const GONE: i32 = 3;
