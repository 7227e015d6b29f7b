//! Policy: with whom a pod may communicate, by labels, addresses, ports and direction.
//!
//! ```text
//!  documents of kind Policy   [`document`] -> [`rules::Policy`]
//!  NetworkPolicies            [`network`] --'
//!  pods and their labels      [`crate::pod`] -> [`identity::Identity`], a number for each set of labels
//!      |
//!  [`evaluate`]                  the outcome for a connection: the model that everything else is compared with
//!  [`compile`]                the same as entries of the data plane's tables, within a [`budget`]
//!  [`tables`]                 these entries, and how they are looked up
//!  [`plan`]                   everything that has to be written for the pods of a node
//! ```
//!
//! A rule matches a connection if the other end is one of its peers and the dialled port is one of its ports. All matching rules
//! of all policies that select a pod count: one that denies outweighs all that allow. If none matches, the policies' defaults
//! decide, and again `deny` outweighs `allow`. A pod that no policy selects may communicate with everybody.

pub mod budget;
pub mod compile;
pub mod document;
pub mod evaluate;
mod fold;
pub mod identity;
pub mod network;
pub mod plan;
pub mod rules;
pub mod selector;
pub mod tables;
