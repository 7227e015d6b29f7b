//! The address ::6, from which a proxy dials programs of its own pod. The loopback has 127.0.0.6 by itself; ::6 has to be added,
//! as istio-iptables does.

use crate::error::{Doing, Result};
use crate::netns;
use crate::proc_net::{self, Tcp};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeader, AddressMessage, AddressProtocol};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use sidestep_netlink::request;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

/// The source address with which the proxy dials a program of its own pod.
pub const ADDRESS: IpAddr = IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6));
const LOOPBACK: u32 = 1;
/// Marks addresses that Sidestep has added (IFA_PROTO, 5.18).
const OURS: AddressProtocol = AddressProtocol::Other(b'S');

/// Adds the address to the loopback of that namespace. False: it is there already.
pub fn add(namespace: &Path) -> Result<bool> {
    let add = || match request(RouteNetlinkMessage::NewAddress(message()), NLM_F_CREATE | NLM_F_EXCL) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    };
    netns::inside(namespace, add).at("enter", namespace)?.at("give ::6 to the loopback of", namespace)
}

/// Removes the address, unless another program has added it. False: it stays, since the proxy has connections from it, which
/// would be cut off.
pub fn remove(namespace: &Path) -> Result<bool> {
    let remove = || {
        if !is_ours()? {
            return Ok(true);
        }
        if is_used()? {
            return Ok(false);
        }
        request(RouteNetlinkMessage::DelAddress(message()), 0).map(|_| true)
    };
    netns::inside(namespace, remove).at("enter", namespace)?.at("take ::6 from the loopback of", namespace)
}

/// As `remove`, in the namespaces with these inodes that have a file here.
pub fn remove_in(inodes: BTreeSet<u64>) -> Result<()> {
    if inodes.is_empty() {
        return Ok(());
    }
    let mut done = BTreeSet::new();
    for (inode, path) in netns::files_of(&inodes) {
        if done.contains(&inode) {
            continue;
        }
        match remove(&path) {
            Err(error) if netns::inode(&path) == Some(inode) => return Err(error),
            Err(_) => {} // the namespace has just ended, or lost this name
            Ok(_) => _ = done.insert(inode),
        }
    }
    Ok(())
}

fn message() -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header =
        AddressHeader { family: AddressFamily::Inet6, prefix_len: 128, index: LOOPBACK, ..AddressHeader::default() };
    message.attributes = vec![
        AddressAttribute::Local(ADDRESS),
        AddressAttribute::Address(ADDRESS),
        AddressAttribute::Flags(AddressFlags::Nodad),
        AddressAttribute::Protocol(OURS),
    ];
    message
}

fn is_ours() -> io::Result<bool> {
    let ours = |message| match message {
        RouteNetlinkMessage::NewAddress(address) => {
            let has = |wanted| address.attributes.contains(&wanted);
            has(AddressAttribute::Address(ADDRESS)) && has(AddressAttribute::Protocol(OURS))
        }
        _ => false,
    };
    Ok(request(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)?.into_iter().any(ours))
}

/// Whether a connection of the calling thread's namespace has the address at either end.
fn is_used() -> io::Result<bool> {
    Ok(proc_net::tcp()?.lines().any(|socket| has_it(&socket)))
}

/// Listeners and sockets in TIME_WAIT do not count.
fn has_it(socket: &Tcp) -> bool {
    let last = u32::from_ne_bytes([0, 0, 0, 6]);
    let own = format!("{:024}{last:08X}:", 0);
    let has_peer = ![proc_net::TIME_WAIT, proc_net::LISTEN].contains(&socket.state);
    has_peer && (socket.local.starts_with(&own) || socket.remote.starts_with(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn connections_that_have_the_address_are_found() {
        const OWN: &str = "00000000000000000000000006000000:C350";
        const OTHER: &str = "000000FD440200000000000002000000:1F90";
        let has = |local: &str, remote: &str, state: &str| has_it(&Tcp { local, remote, state, inode: "71" });
        assert!(has(OWN, OTHER, "01") && has(OTHER, OWN, "08"));
        assert!(!has(OTHER, OTHER, "01") && !has(OWN, OTHER, "06"));
    }
}
