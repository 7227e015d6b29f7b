//! What kube-proxy makes of Services in its IPVS mode, as `ipvsadm --restore` and `ip -batch` read it: a virtual server each,
//! and their addresses at a dummy device, so that the node takes the packets in.

use super::workload::{Change, PORT, Service, TARGET_PORT};
use std::net::Ipv4Addr;

const DEVICE: &str = "kube-ipvs0";

/// Of everything. `whole` says which Services have real servers.
pub fn everything(all: &[Service], whole: fn(&Service) -> bool) -> String {
    let mut text = String::new();
    for service in all {
        text += &format!("-A -t {} -s rr\n", virtual_server(service));
        for address in service.endpoints.iter().filter(|_| whole(service)) {
            text += &server(service, *address);
        }
    }
    text
}

pub fn addresses(all: &[Service]) -> String {
    all.iter().map(|service| format!("addr replace {}/32 dev {DEVICE}\n", service.address)).collect()
}

/// What is written after a change.
pub fn change(change: &Change) -> String {
    let come = change.come().map(|address| server(&change.new, address));
    let gone =
        change.gone().map(|address| format!("-d -t {} -r {address}:{TARGET_PORT}\n", virtual_server(&change.old)));
    come.chain(gone).collect()
}

fn virtual_server(service: &Service) -> String {
    format!("{}:{PORT}", service.address)
}

fn server(service: &Service, address: Ipv4Addr) -> String {
    format!("-a -t {} -r {address}:{TARGET_PORT} -m -w 1\n", virtual_server(service))
}

#[cfg(test)]
mod tests {
    use super::super::workload::services;
    use super::*;

    #[test]
    fn a_virtual_server_each_and_its_endpoints() {
        let text = everything(&services(100), |_| true);
        assert_eq!((text.matches("-A -t 10.").count(), text.matches(" -m -w 1\n").count()), (100, 100 * 12));
        assert_eq!(addresses(&services(100)).lines().count(), 100);
    }

    #[test]
    fn a_change_adds_before_it_removes() {
        let text = change(&Change::there(&services(10)));
        assert_eq!(text, "-a -t 10.96.0.3:80 -r 10.78.0.13:8080 -m -w 1\n-d -t 10.96.0.3:80 -r 10.78.0.12:8080\n");
    }
}
