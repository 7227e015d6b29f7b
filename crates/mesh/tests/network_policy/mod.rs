//! NetworkPolicies: the cases of the upstream end-to-end suite by name, and random policies compared with an oracle.

mod cases;
mod documents;
mod oracle;
mod random;
mod table;
mod world;
