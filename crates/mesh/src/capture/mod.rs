//! Capture: which connections of a pod go through its proxy. The order of the rules is that of istio-iptables.

pub mod rules;
pub mod tables;
