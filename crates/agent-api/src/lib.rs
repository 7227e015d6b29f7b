//! Questions to the agent of a node, and its answers: one JSON document in each direction, over a UNIX socket.
//!
//! ```text
//!   sidestep service list --> {"ask":"list"}\n --> agent
//!                         <-- {"Ok":{...}}     <--
//! ```
//!
//! Field names are stable: scripts read them through `--json`.

#![forbid(unsafe_code)]

mod admission;
mod answer;
mod client;
mod metrics;
mod policy;
mod question;
mod rings;

pub use admission::*;
pub use answer::*;
pub use client::{AskError, DEFAULT_SOCKET, Limits, ask, ask_within};
pub use metrics::*;
pub use policy::*;
pub use question::{Caller, Protocol, Question};
pub use rings::*;

use serde::{Deserialize, Serialize};

/// What the agent sends back: the answer, or why there is none.
pub type Reply = Result<Answer, Refusal>;

/// Why there is no answer, as the agent words it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(transparent)]
#[error("{0}")]
pub struct Refusal(pub String);
