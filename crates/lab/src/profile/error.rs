//! Why CPU time could not be sampled.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("where CPU time goes cannot be sampled: {0}")]
    Processors(#[source] io::Error),
    #[error(
        "where CPU time goes cannot be sampled: the kernel's event cpu-clock: {0} (it needs root, or CAP_PERFMON and \
         kernel.perf_event_paranoid=-1)"
    )]
    Clock(#[source] io::Error),
    #[error("a sample of cpu-clock cannot be read: {0}")]
    Sample(#[source] perf_event::data::parse::ParseError),
    #[error("the thread that takes samples has panicked")]
    Panicked,
}
