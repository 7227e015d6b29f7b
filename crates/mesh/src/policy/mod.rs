//! Policy: with whom a pod may talk, by labels, addresses, ports and direction.
//!
//! ```text
//!  documents of kind Policy   [`document`] -> [`rules::Policy`]
//!  pods and their labels      [`crate::pod`] -> [`identity::Identity`], a number for each set of labels
//!      |
//!  [`judge`]                  what becomes of a connection, in plain words: what everything else is held to
//!  [`tables`]                 the same as entries of the data plane's tables, and how they are asked
//!  [`plan`]                   everything that is to be written for the pods of a node
//! ```
//!
//! A rule fits a connection if one of its peers is the other end and one of its ports the one that was dialled. Of all
//! policies that select a pod every fitting rule counts: one that denies outweighs all that allow. Where none fits, the
//! policies' defaults decide, and again `deny` outweighs `allow`. Whom no policy selects may talk with everybody.

pub mod document;
pub mod identity;
pub mod judge;
pub mod plan;
pub mod rules;
pub mod tables;
