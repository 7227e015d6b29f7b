//! A run: from outside it starts itself once more in namespaces of its own, and there it measures.
//!
//! Whatever happens to either of the two, nothing stays. Inside is process 1 of its own PID namespace: with it the kernel
//! ends everything that it has started, and with the last process go network namespaces, mounts and BPF programs. Inside
//! ends when the pipe from outside closes. Cgroups and the scratch directory are outside's to remove, or the next run's.

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
