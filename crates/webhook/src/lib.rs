//! The containers of enrolled pods start with Sidestep's library, where no runtime asks plugins: an admission webhook, which the API
//! server asks before it stores a pod.
//!
//! ```text
//! run          threads                              metrics
//!   |
//! server       TLS and HTTP; certificate: files that change
//!   |
//! review       a request -> an answer
//!   |      \
//! decision    mutation    what of a pod is changed
//!   |     \
//! pod     nodes (selector)    which nodes have the library
//! ```
//!
//! What is decided about containers is in sidestep-injection, which the NRI plugin uses, too.
#![forbid(unsafe_code)]

mod case;
mod certificate;
mod decision;
mod metrics;
mod mutation;
mod node;
mod nodes;
mod places;
mod pod;
mod review;
pub mod run;
mod selector;
mod server;
mod watch;

pub use case::Case;
pub use nodes::Nodes;
pub use places::Places;
pub use review::{Reviewed, review};
