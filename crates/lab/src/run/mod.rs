//! A run: the process outside starts the program again, in namespaces of its own, and the process inside measures.
//!
//! Whatever happens to either process, nothing stays. The process inside is process 1 of its PID namespace: when it ends, the
//! kernel kills everything that it has started. Network namespaces, mounts and BPF programs end with the last process. The
//! process inside ends when the pipe from outside closes. The process outside removes the cgroup and the scratch directory; if it
//! was killed, the next run does.

mod blank;
mod budget;
mod contestant;
mod error;
mod experiment;
mod inside;
mod leftovers;
mod needs;
mod notes;
mod order;
mod outside;
mod progress;
mod sound;
mod stop;
mod trial;
mod versions;

pub use error::{Failure, RunError, WrongError};
pub use inside::inside;
pub use order::INSIDE;
pub use outside::{Request, WRONG, run};
