//! The containers of enrolled pods start with Sidestep's library: a plugin for NRI, the Node Resource Interface of containerd and
//! CRI-O.
//!
//! ```text
//! run         connects, and connects again                     store       versions of the library on a node
//!   |
//! session     one connection: mux (frames), ttrpc (calls)
//!   |
//! plugin      a request -> an answer                            reporter    log, file of events, metrics
//!   |     \
//! pod          injection    inspector -> entrypoint
//! (namespaces) (mounts, variables)       (a container's first program)
//! ```
//!
//! What is decided about containers is in sidestep-injection, which the admission webhook uses, too.
#![forbid(unsafe_code)]

pub mod api;
mod entrypoint;
pub mod injection;
mod inspector;
mod metrics;
pub mod mux;
pub mod namespaces;
mod plugin;
mod pod;
mod present;
mod report;
pub mod run;
mod server;
mod session;
pub mod store;
pub mod ttrpc;
