//! Rules as releases of kube-proxy before 1.36 wrote them in its nftables mode, as nft(8) reads them.
//!
//! ```text
//! map service-ips     address . protocol . port : goto service-...     one look-up for all Services
//!   service-...       numgen random mod N vmap { 0 : goto endpoint-..., ... }
//!     endpoint-...    DNAT
//! ```

use super::workload::{Change, NAMESPACE, POD_RANGE, PORT, Service, TARGET_PORT};
use std::net::Ipv4Addr;

const TABLE: &str = "ip kube-proxy";
/// Where Services lead that have no chain of their own.
const HOLLOW: &str = "mark-for-masquerade";
/// What is there before any Service.
const BASE: &str = include_str!("kube-proxy.nft");

/// Of everything. `whole` says which Services have chains of their own.
pub fn everything(all: &[Service], whole: fn(&Service) -> bool) -> String {
    let mut text = BASE.to_owned();
    for service in all {
        let chain = if whole(service) { service_chain(service) } else { HOLLOW.into() };
        if whole(service) {
            service.endpoints.iter().for_each(|address| endpoint(&mut text, service, *address));
            text += &format!("add chain {TABLE} {chain}\n");
            service_rules(&mut text, service);
        }
        text += &format!("add element {TABLE} cluster-ips {{ {} }}\n", service.address);
        text += &format!("add element {TABLE} service-ips {{ {} . tcp . {PORT} : goto {chain} }}\n", service.address);
    }
    text
}

/// What is written after a change.
pub fn change(change: &Change) -> String {
    let mut text = String::new();
    change.come().for_each(|address| endpoint(&mut text, &change.new, address));
    text += &format!("flush chain {TABLE} {}\n", service_chain(&change.new));
    service_rules(&mut text, &change.new);
    for address in change.gone() {
        let chain = endpoint_chain(&change.old, address);
        text += &format!("flush chain {TABLE} {chain}\ndelete chain {TABLE} {chain}\n");
    }
    text
}

fn endpoint(text: &mut String, service: &Service, address: Ipv4Addr) {
    let chain = endpoint_chain(service, address);
    *text += &format!("add chain {TABLE} {chain}\n");
    *text += &format!("add rule {TABLE} {chain} ip saddr {address} jump mark-for-masquerade\n");
    *text += &format!("add rule {TABLE} {chain} meta l4proto tcp dnat to {address}:{TARGET_PORT}\n");
}

fn service_rules(text: &mut String, service: &Service) {
    let head = format!("add rule {TABLE} {}", service_chain(service));
    let matched = format!("ip daddr {} tcp dport {PORT}", service.address);
    *text += &format!("{head} {matched} ip saddr != {POD_RANGE} jump mark-for-masquerade\n");
    let numbered = service.endpoints.iter().enumerate();
    let gotos = numbered.map(|(number, address)| format!("{number} : goto {}", endpoint_chain(service, *address)));
    let gotos = gotos.collect::<Vec<_>>().join(", ");
    *text += &format!("{head} numgen random mod {} vmap {{ {gotos} }}\n", service.endpoints.len());
}

/// As long as kube-proxy's names, which begin with a part of a digest.
fn service_chain(service: &Service) -> String {
    format!("service-{:08X}-{NAMESPACE}/{}/tcp/", service.number, service.name)
}

fn endpoint_chain(service: &Service, address: Ipv4Addr) -> String {
    format!("endpoint-{:08X}-{NAMESPACE}/{}/tcp/__{address}/{TARGET_PORT}", service.number, service.name)
}

#[cfg(test)]
mod tests {
    use super::super::workload::services;
    use super::*;

    #[test]
    fn one_element_a_service_and_one_chain_an_endpoint() {
        let text = everything(&services(100), |_| true);
        assert_eq!(text.matches("kube-proxy service-ips { 10.").count(), 100);
        assert_eq!(text.matches("dnat to").count(), 100 * 12);
        let hollow = everything(&services(100), |each| each.dialled);
        assert_eq!(hollow.matches("kube-proxy service-ips { 10.").count(), 100);
        assert_eq!(hollow.matches("dnat to").count(), 3 * 12);
    }

    #[test]
    fn a_change_writes_one_service() {
        let there = Change::there(&services(100));
        let text = change(&there);
        assert_eq!((text.matches("numgen").count(), text.matches("dnat to").count()), (1, 1));
        let old = endpoint_chain(&there.old, *there.old.endpoints.last().expect("twelve"));
        assert!(text.contains(&format!("delete chain ip kube-proxy {old}\n")));
    }
}
