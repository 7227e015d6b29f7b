//! Runs models, and makes sure that they explore something.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs one model in all its interleavings with at most `preemptions` of them, and says how many they were.
pub fn explore(name: &str, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let runs = Arc::new(AtomicU64::new(0));
    let count = runs.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{name}: {runs} interleavings");
    assert!(runs > 10, "{name}: {runs} interleavings are no model of anything");
}
