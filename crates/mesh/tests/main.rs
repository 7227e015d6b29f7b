//! All integration tests of this crate, linked once.

mod bypass;
mod capture_flags;
mod capture_iptables;
mod capture_istio_rules;
mod capture_pod;
mod capture_verdict;
mod iptables;
mod network_policy;
mod plain;
mod policy_budget;
mod policy_documents;
mod policy_tables;
mod reconcile;
mod restarts;
mod yaml;
