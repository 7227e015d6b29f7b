//! The rules of kube-proxy, beside which packets must not be translated a second time.

use super::nat;
use crate::error::{Doing, Result};
use std::path::Path;

/// A chain that kube-proxy has in its modes iptables and ipvs.
const CHAIN: &str = "KUBE-SERVICES";
/// Its table in mode nftables.
const TABLE: &str = "kube-proxy";

/// What there is of kube-proxy's rules in the calling thread's network namespace, in words for an operator.
pub fn rivals() -> Result<Vec<String>> {
    let mut found = Vec::new();
    if nat::tables().doing("list the tables of nftables")?.iter().any(|name| name == TABLE) {
        found.push(format!("nftables' table {TABLE}"));
    }
    if nat::chains().doing("list the chains of nftables")?.iter().any(|name| name == CHAIN) {
        found.push(format!("iptables' chain {CHAIN}"));
    }
    if has_virtual_servers(Path::new("/proc/thread-self/net/ip_vs")) {
        found.push("virtual servers of IPVS".into());
    }
    Ok(found)
}

/// The file begins with lines of headings. A kernel without IPVS has no such file.
fn has_virtual_servers(table: &Path) -> bool {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    text.lines().any(|line| ["TCP ", "UDP ", "SCTP ", "FWM "].iter().any(|kind| line.starts_with(kind)))
}
