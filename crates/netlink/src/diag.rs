//! Requests to sock_diag(7) about the network namespace of the calling thread.

use crate::{HEADER, messages, open};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Of linux/sock_diag.h and linux/netlink.h.
const SOCK_DESTROY: u16 = 21;
const ERROR: u16 = 2;

/// Ends the TCP connection with these addresses, whoever has it: its program finds ECONNABORTED. Needs CAP_NET_ADMIN.
///
/// # Errors
///
/// The kernel's. ENOENT: there is none; EOPNOTSUPP: this kernel ends nobody's connection.
pub fn destroy(local: &SocketAddr, remote: &SocketAddr) -> io::Result<()> {
    let socket = open(NETLINK_SOCK_DIAG)?;
    socket.send(&request(local, remote), 0)?;
    let (datagram, _) = socket.recv_from_full()?;
    let answer = messages(&datagram).find(|message| message.kind == ERROR);
    match answer.and_then(|message| message.body.first_chunk().copied()).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// `struct inet_diag_req_v2`, behind its header.
fn request(local: &SocketAddr, remote: &SocketAddr) -> Vec<u8> {
    const BODY: usize = 56;
    const TCP: u8 = 6;
    let family = if local.is_ipv4() { 2 } else { 10 }; // AF_INET, AF_INET6
    let flags = NLM_F_REQUEST | NLM_F_ACK;
    let header =
        [&((HEADER + BODY) as u32).to_ne_bytes()[..], &SOCK_DESTROY.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8]];
    let states = u32::MAX.to_ne_bytes();
    let ports = [local.port().to_be_bytes(), remote.port().to_be_bytes()];
    let (any_device, no_cookie) = ([0; 4], [0xff; 8]);
    let id = [&ports.concat()[..], &address(local), &address(remote), &any_device, &no_cookie];
    [&header.concat()[..], &[family, TCP, 0, 0], &states, &id.concat()].concat()
}

fn address(of: &SocketAddr) -> [u8; 16] {
    match of.ip() {
        IpAddr::V4(ip) => {
            let mut whole = [0; 16];
            whole[..4].copy_from_slice(&ip.octets());
            whole
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// The test runs as root, in a process of its own, and names a connection of its own.
    #[test]
    fn a_connection_ends_and_another_one_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let [one, other] =
            [(); 2].map(|()| TcpStream::connect(listener.local_addr().expect("local")).expect("connect"));
        let name = |stream: &TcpStream| (stream.local_addr().expect("local"), stream.peer_addr().expect("peer"));
        let ((local, remote), (spared, _)) = (name(&one), name(&other));
        destroy(&local, &remote).expect("destroyed");
        assert_eq!(one.take_error().expect("SO_ERROR").map(|e| e.kind()), Some(io::ErrorKind::ConnectionAborted));
        assert!(other.take_error().expect("SO_ERROR").is_none());
        assert_eq!(destroy(&local, &remote).expect_err("it is gone").kind(), io::ErrorKind::NotFound);
        assert_eq!(other.local_addr().expect("local"), spared);
    }
}
