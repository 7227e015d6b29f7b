//! Follows the addresses of this node.

use crate::message::{Gone, Message};
use ipnet::IpNet;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use sidestep_error::chain;
use sidestep_mesh::address::Address;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// rtnetlink(7): RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR as bits.
const GROUPS: u32 = 1 << 0 | 1 << 4 | 1 << 8;
/// Changes come in bursts: wait so long for the burst to end.
const SWARM: Duration = Duration::from_millis(10);
/// A failure passes, such as that no descriptor is free: after so long everything is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Failures that follow each other faster are one in the log.
const SAME: Duration = Duration::from_secs(60);

/// Reports the addresses now and after each change, until the receiver has gone.
pub fn follow(inbox: &Sender<Message>) -> Gone {
    follow_by(present, inbox)
}

fn follow_by(mut read: impl FnMut() -> io::Result<Message>, inbox: &Sender<Message>) -> Gone {
    let mut failed: Option<Instant> = None;
    loop {
        let error = match until_failure(&mut read, inbox) {
            Ok(gone) => return gone,
            Err(error) => chain(&error).to_string(),
        };
        if failed.is_none_or(|at| at.elapsed() > SAME) {
            tracing::error!("NodePorts and policies do not follow this node's addresses: reading them fails: {error}");
        }
        failed = Some(Instant::now());
        std::thread::sleep(AGAIN);
    }
}

/// What has changed before the socket is open is in the first reading.
fn until_failure(read: &mut impl FnMut() -> io::Result<Message>, inbox: &Sender<Message>) -> io::Result<Gone> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, GROUPS))?;
    loop {
        if inbox.send(read()?).is_err() {
            return Ok(Gone);
        }
        wait(&socket)?;
        std::thread::sleep(SWARM);
    }
}

/// Returns after any change, since all addresses are read anew. A buffer overrun counts as a change.
fn wait(socket: &Socket) -> io::Result<()> {
    match socket.recv_from_full() {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::NOBUFS.raw_os_error()) => Err(error),
        _ => Ok(()),
    }
}

/// The interface of NodeLocal DNSCache.
const DNS_CACHE: &str = "nodelocaldns";
/// Interfaces that hold addresses of Services: all of them in IPVS mode, and that of the cluster's DNS.
const NOT_THE_NODE: [&str; 2] = ["kube-ipvs0", DNS_CACHE];

/// The node's own addresses are all except loopback ones, which the programs recognize, and link-local ones, which other nodes have
/// too. Of these only the DNS cache's is the node's for policies, which also let in whatever the node sends.
fn present() -> io::Result<Message> {
    let (mut own, mut dns_cache) = (BTreeSet::new(), BTreeSet::new());
    for interface in if_addrs::get_if_addrs()? {
        let (name, ip) = (interface.name.as_str(), interface.ip());
        if name == DNS_CACHE && ip.is_ipv4() && is_link_local(&ip) {
            dns_cache.insert(Address::from(ip));
        } else if !NOT_THE_NODE.contains(&name) && !ip.is_loopback() && !is_link_local(&ip) {
            own.insert(Address::from(ip));
        }
    }
    Ok(Message::NodeAddresses { own, dns_cache })
}

/// Whether the address is in one of these networks, or there are none.
pub fn is_within(networks: &[IpNet], address: Address) -> bool {
    networks.is_empty() || networks.iter().any(|network| network.contains(&address.ip()))
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::sync::mpsc::channel;

    #[test]
    fn addresses_are_read_again_after_a_failure() {
        let (inbox, messages) = channel();
        let mut attempts = 0;
        let read = || {
            attempts += 1;
            if attempts == 1 { Err(Errno::MFILE.into()) } else { present() }
        };
        // The first message that can be sent ends it.
        drop(messages);
        let _gone = follow_by(read, &inbox);
        assert_eq!(attempts, 2);
    }
}
