//! The rules of kube-proxy, beside which packets must not be translated a second time.

use super::{legacy, nat};
use crate::error::{Doing, Result};
use std::path::Path;

/// A chain that kube-proxy has in its modes iptables and ipvs.
const CHAIN: &str = "KUBE-SERVICES";
/// Its table in mode nftables.
const TABLE: &str = "kube-proxy";

/// What there is of kube-proxy's rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "kube-proxy's rules are still here: {}. Stop kube-proxy, and remove them by `kube-proxy --cleanup`, or restart the node",
    .0.join(", ")
)]
pub struct Rivals(Vec<String>);

/// Looks for rules of kube-proxy in the calling thread's network namespace. None: there are none.
pub fn rivals() -> Result<Option<Rivals>> {
    let mut found = Vec::new();
    if nat::tables().doing("list the tables of nftables")?.iter().any(|name| name == TABLE) {
        found.push(format!("nftables' table {TABLE}"));
    }
    if nat::chains().doing("list the chains of nftables")?.iter().any(|name| name == CHAIN) {
        found.push(format!("iptables' chain {CHAIN}"));
    }
    if legacy::has_chain(CHAIN).doing("read the rules of iptables-legacy")? {
        found.push(format!("iptables-legacy's chain {CHAIN}"));
    }
    if has_virtual_servers(Path::new("/proc/thread-self/net/ip_vs")) {
        found.push("virtual servers of IPVS".into());
    }
    Ok((!found.is_empty()).then_some(Rivals(found)))
}

/// The file begins with lines of headings. A kernel without IPVS has no such file.
fn has_virtual_servers(table: &Path) -> bool {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    text.lines().any(|line| ["TCP ", "UDP ", "SCTP ", "FWM "].iter().any(|kind| line.starts_with(kind)))
}
