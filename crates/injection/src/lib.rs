//! Which containers of pods start with Sidestep's library, and what they get: the decisions, whoever carries them out. The NRI
//! plugin changes a container before it is created, the admission webhook a pod before it is stored.
#![forbid(unsafe_code)]

mod counts;
mod enrolment;
mod mounts;
mod outcome;
mod place;
mod preload;
mod reason;

pub use counts::Outcomes;
pub use enrolment::{Enrolment, Pod, enrolment};
pub use mounts::conflict;
pub use outcome::Outcome;
pub use place::{CURRENT, LIBRARY, PlaceError, directory, file_name};
pub use preload::{LD_PRELOAD, extended, names_library_below};
pub use reason::Reason;
pub use sidestep_abi::env::BROKER;
