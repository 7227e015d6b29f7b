//! What the Services of a cluster mean on one node, and how the maps of the data plane come to say so; and which
//! connections of a pod go through its proxy ([`capture`]), and with whom it may talk ([`policy`]).
//!
//! ```text
//!  sources (YAML files, API server)                 crates/agent
//!      | Object                                  [`object`], [`yaml`], [`kubernetes`]
//!  [`state::State`]       every Service and EndpointSlice; which Services a change concerns
//!      | one Service and its endpoints
//!  [`choose`]             which endpoints serve on this node: readiness, policy, topology
//!      | lists of backends
//!  [`table`]              the frontends of the Service, each with its list
//!      |
//!  [`reconcile::Reconciler`]   identities, places, order of publication
//!      | [`plane::DataPlane`]
//!  the maps               crates/ebpf
//! ```
//!
//! Nothing here does I/O, except through the trait of the data plane, or knows the time: it comes from the caller.

// Not all of it is documented yet.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

pub mod address;
pub mod backends;
pub mod bypass;
pub mod capture;
pub mod choose;
pub mod claims;
mod document;
pub mod field;
pub mod inherited;
pub mod kubernetes;
pub mod name;
pub mod object;
pub mod pending;
pub mod plane;
pub mod pod;
pub mod policy;
pub mod ranges;
pub mod reconcile;
pub mod retired;
pub mod state;
pub mod table;
pub mod vose_alias;
pub mod yaml;
