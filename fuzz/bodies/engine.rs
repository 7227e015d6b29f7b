//! What a body with threads runs on: under `--cfg loom` the model checker, which tries all interleavings, and otherwise real
//! threads, many times.
#![allow(dead_code, unused_imports)] // each test uses its part

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    sync::atomic::AtomicBool,
    sync::{Arc, Condvar, Mutex},
    thread,
};
#[cfg(not(loom))]
pub use real::UnsafeCell;
#[cfg(not(loom))]
pub use std::{
    sync::atomic::AtomicBool,
    sync::{Arc, Condvar, Mutex},
    thread,
};

/// Runs a body in all its interleavings with at most `preemptions` of them, and says how many they were.
#[cfg(loom)]
pub fn explore(name: &str, preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let runs = std::sync::Arc::new(AtomicU64::new(0));
    let count = runs.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000; // of one run, which ends with a check in one thread
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{name}: {runs} interleavings");
    assert!(runs > 10, "{name}: {runs} interleavings are no model of anything");
}

/// Runs a body on real threads, as often as the processors interleave them.
#[cfg(not(loom))]
pub fn explore(name: &str, _preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    real::explore(name, body);
}

#[cfg(not(loom))]
mod real {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    const RUNS: usize = 2000;
    /// For what takes microseconds unless a wake-up was lost.
    const DEADLINE: Duration = Duration::from_secs(60);

    pub fn explore(name: &str, body: impl Fn() + Send + 'static) {
        let (done, is_done) = channel::<()>();
        let runner = std::thread::spawn(move || {
            (0..RUNS).for_each(|_| body());
            drop(done);
        });
        // The channel closes at the end of the runs, and when one panics.
        let ended = is_done.recv_timeout(DEADLINE);
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected), "{name}: a thread sleeps for ever");
        if let Err(panic) = runner.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// The model checker's interface for what the standard library's cell does.
    #[derive(Debug)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    // SAFETY: the protocol under test orders all accesses; the model checker runs the same bodies and proves it.
    unsafe impl<T: Send> Sync for UnsafeCell<T> {}

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        pub fn with<R>(&self, work: impl FnOnce(*const T) -> R) -> R {
            work(self.0.get())
        }

        pub fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
            work(self.0.get())
        }
    }
}
