//! Socket calls as programs make them.
//!
//! Each case in [`cases`] asserts what Linux TCP does, and passes unchanged on plain kernel TCP and with the Sidestep library
//! preloaded. A case is a function. The other end of its connection is usually in a `peer` process, a puppet that executes
//! one command after another. `posix-cases` runs one case, `posix-run` runs all of them in three modes.

mod around;
pub mod bare;
mod carried;
mod case;
pub mod cases;
pub mod early;
mod end;
pub mod hosts;
mod link;
mod namespace;
pub mod pattern;
mod peer;
pub mod puppet;
mod replace;
pub mod rng;
pub mod runner;
mod seccomp;
pub mod shipped;
mod spawn;
pub mod sys;
mod traffic;
pub mod ways;
