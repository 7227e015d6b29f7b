//! What the Services of a cluster mean on one node, and how the data plane's maps are made to match; which connections of a
//! pod go through its proxy ([`capture`]); and with whom a pod may communicate ([`policy`]).
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
//!  [`reconcile::Reconciler`]   numbers, slots, order of publication
//!      | [`plane::DataPlane`]
//!  the maps               crates/ebpf
//! ```
//!
//! Nothing here does I/O, except through the data plane's trait. The caller supplies the time.

#![forbid(unsafe_code)]

pub mod address;
mod backends;
pub mod bypass;
pub mod capture;
pub mod choose;
mod claims;
mod document;
pub mod field;
mod inherited;
pub mod kubernetes;
mod labels;
mod name;
pub mod object;
mod pending;
pub mod plane;
pub mod pod;
pub mod policy;
mod ranges;
pub mod reconcile;
pub mod retired;
pub mod shares;
pub mod state;
pub mod table;
mod vose_alias;
pub mod yaml;
