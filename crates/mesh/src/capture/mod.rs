//! Capture: which connections of a pod go through its proxy. The order of the rules is that of istio-iptables.

pub mod annotations;
pub mod defaults;
pub mod flags;
pub mod pod;
pub mod rules;
pub mod tables;
mod text;
