//! Execution of steps: actors, the threads that make their calls, and the coordinator.

pub mod actor;
pub mod bulk;
pub mod channel;
pub mod coordinator;
pub mod links;
mod memory;
mod pending;
mod place;
mod tell;
pub mod worker;
