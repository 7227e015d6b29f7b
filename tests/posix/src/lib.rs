//! Socket calls as programs make them.
//!
//! Each case in [`cases`] asserts what Linux TCP does, and passes unchanged on plain kernel TCP and with the Sidestep library
//! preloaded. A case is a function. The other end of its connection is usually in a [`peer`] process, a puppet that executes
//! one command after another. `posix-cases` runs one case, `posix-run` runs all of them in three modes.

// A program of tests: items are public for its two executables.
#![allow(missing_docs)]

pub mod around;
pub mod bare;
pub mod case;
pub mod cases;
pub mod early;
pub mod end;
pub mod link;
pub mod namespace;
pub mod pattern;
pub mod peer;
pub mod puppet;
pub mod replace;
pub mod rng;
pub mod runner;
pub mod seccomp;
pub mod shipped;
pub mod spawn;
pub mod sys;
pub mod traffic;
pub mod ways;
