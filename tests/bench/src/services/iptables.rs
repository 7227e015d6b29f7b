//! Rules as kube-proxy writes them in its iptables mode, in the format of iptables-save(8).
//!
//! ```text
//! KUBE-SERVICES       one rule a Service, looked through in order
//!   KUBE-SVC-...      one rule an endpoint, taken with a probability
//!     KUBE-SEP-...    DNAT
//! ```
//!
//! From 1,000 endpoints on kube-proxy leaves comments out. After a change it writes KUBE-SERVICES and the chains of the
//! Service that has changed, and leaves the other chains alone.

use super::workload::{Change, ENDPOINTS, NAMESPACE, POD_RANGE, PORT, Service, TARGET_PORT};
use std::net::Ipv4Addr;

const COMMENTED: usize = 1_000;
/// Where Services lead that have no chain of their own.
const HOLLOW: &str = "KUBE-MARK-MASQ";

const FILTER: &str = "\
*filter
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A INPUT -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A FORWARD -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
";
const JUMPS: &str = "\
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
";
/// Written at every change, as kube-proxy does.
const COMMON_CHAINS: &str = "\
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
";
const COMMON_RULES: &str = "\
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
";
const LAST_RULE: &str = "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n";

/// Of everything. `whole` says which Services have chains of their own.
pub fn everything(all: &[Service], whole: fn(&Service) -> bool) -> String {
    let own: Vec<&Service> = all.iter().filter(|each| whole(each)).collect();
    FILTER.to_owned() + &nat(all, whole, &own, JUMPS, &[])
}

/// What is written after a change.
pub fn change(all: &[Service], whole: fn(&Service) -> bool, change: &Change) -> String {
    let gone: Vec<String> = change.gone().map(|address| endpoint_chain(&change.old, address)).collect();
    nat(all, whole, &[&change.new], "", &gone)
}

/// The nat table: a rule for each Service, the chains of some, and chains that go.
fn nat(all: &[Service], whole: fn(&Service) -> bool, own: &[&Service], jumps: &str, gone: &[String]) -> String {
    let commented = all.len() * ENDPOINTS as usize <= COMMENTED;
    let mut text = format!("*nat\n{COMMON_CHAINS}");
    for chain in own.iter().flat_map(|each| chains_of(each)).chain(gone.iter().cloned()) {
        text += &format!(":{chain} - [0:0]\n");
    }
    text += jumps;
    text += COMMON_RULES;
    for each in all {
        let chain = if whole(each) { service_chain(each) } else { HOLLOW.into() };
        let comment = comment(&format!("{} cluster IP", identity(each)), commented);
        text += &format!("-A KUBE-SERVICES {comment}{} -j {chain}\n", matched(each));
    }
    own.iter().for_each(|each| rules_of(&mut text, each, commented));
    text += LAST_RULE;
    gone.iter().for_each(|chain| text += &format!("-X {chain}\n"));
    text + "COMMIT\n"
}

fn rules_of(text: &mut String, service: &Service, commented: bool) {
    let chain = service_chain(service);
    let said = comment(&format!("{} cluster IP", identity(service)), commented);
    *text += &format!("-A {chain} {said}{} ! -s {POD_RANGE} -j {HOLLOW}\n", matched(service));
    for (left, address) in (1..=service.endpoints.len()).rev().zip(&service.endpoints) {
        let said = comment(&format!("{} -> {address}:{TARGET_PORT}", identity(service)), commented);
        let chance = match left {
            1 => String::new(),
            left => format!("-m statistic --mode random --probability {:.10} ", 1.0 / left as f64),
        };
        *text += &format!("-A {chain} {said}{chance}-j {}\n", endpoint_chain(service, *address));
    }
    for address in &service.endpoints {
        let (chain, said) = (endpoint_chain(service, *address), comment(&identity(service), commented));
        *text += &format!("-A {chain} {said}-s {address} -j {HOLLOW}\n");
        *text += &format!("-A {chain} {said}-m tcp -p tcp -j DNAT --to-destination {address}:{TARGET_PORT}\n");
    }
}

fn matched(service: &Service) -> String {
    format!("-m tcp -p tcp -d {} --dport {PORT}", service.address)
}

fn identity(service: &Service) -> String {
    format!("{NAMESPACE}/{}", service.name)
}

fn comment(words: &str, wanted: bool) -> String {
    if wanted { format!("-m comment --comment \"{words}\" ") } else { String::new() }
}

/// As long as kube-proxy's names, which are parts of a digest.
fn service_chain(service: &Service) -> String {
    format!("KUBE-SVC-{:016X}", service.number)
}

fn endpoint_chain(service: &Service, address: Ipv4Addr) -> String {
    format!("KUBE-SEP-{:08X}{:08X}", service.number, u32::from(address))
}

fn chains_of(service: &Service) -> Vec<String> {
    let endpoints = service.endpoints.iter().map(|address| endpoint_chain(service, *address));
    [service_chain(service)].into_iter().chain(endpoints).collect()
}

#[cfg(test)]
mod tests {
    use super::super::workload::services;
    use super::*;
    use std::collections::HashSet;

    fn all_are(_: &Service) -> bool {
        true
    }

    #[test]
    fn every_chain_that_is_jumped_to_is_there() {
        let text = everything(&services(5), all_are);
        let declared: HashSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next()).collect();
        let jumps: HashSet<&str> =
            text.lines().filter_map(|line| line.split_once("-j ")?.1.split(' ').next()).collect();
        let targets = HashSet::from(["ACCEPT", "DROP", "RETURN", "MARK", "MASQUERADE", "DNAT"]);
        assert_eq!(&(&jumps - &declared) - &targets, HashSet::new());
        assert_eq!(text.matches("-j DNAT").count(), 5 * 12);
    }

    #[test]
    fn endpoints_are_equally_likely() {
        let text = everything(&services(1), all_are);
        let chances: Vec<f64> = text
            .lines()
            .filter_map(|line| line.split_once("--probability ")?.1.split(' ').next()?.parse().ok())
            .collect();
        let fair: Vec<f64> = (2..=12).rev().map(|left| (1e10 / f64::from(left)).round() / 1e10).collect();
        assert_eq!(chances, fair);
    }

    #[test]
    fn comments_end_where_kube_proxy_ends_them() {
        assert!(everything(&services(83), all_are).contains("--comment"));
        assert!(!everything(&services(84), all_are).contains("--comment"));
    }

    #[test]
    fn a_change_keeps_every_service_and_takes_the_old_endpoint_away() {
        let all = services(100);
        let there = Change::there(&all);
        let text = change(&all, all_are, &there);
        assert_eq!(text.matches("-A KUBE-SERVICES").count(), 100 + 1);
        assert_eq!(text.matches("-j DNAT").count(), 12);
        let old = endpoint_chain(&there.old, *there.old.endpoints.last().expect("twelve"));
        assert!(text.contains(&format!("-X {old}\n")));
    }

    #[test]
    fn who_is_not_dialled_can_be_hollow() {
        let text = everything(&services(100), |each| each.dialled);
        assert_eq!(text.matches("-A KUBE-SERVICES").count(), 100 + 1);
        assert_eq!(text.matches("-j DNAT").count(), 3 * 12);
    }
}
