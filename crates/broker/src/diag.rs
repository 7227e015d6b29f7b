//! Questions to the kernel about a TCP socket of another process (NETLINK_SOCK_DIAG, sock_diag(7)), in one network namespace.

use crate::addr::Endpoint;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// Of linux/netlink.h and linux/sock_diag.h.
const HEADER: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Of linux/inet_diag.h: `inet_diag_req_v2`, and the offsets of state and inode in `inet_diag_msg`.
const REQUEST: usize = 56;
const STATE_AT: usize = 1;
const INODE_AT: usize = 68;
const ANSWER: usize = 72;

/// TCP states (net/tcp_states.h) of a connected socket: established, or half closed.
const CONNECTED: [u8; 6] = [1, 4, 5, 8, 9, 11];

/// The socket to look for, with exactly these addresses.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The kernel's number of the socket.
    pub cookie: u64,
    /// Its own address.
    pub local: Endpoint,
    /// The address of the other end.
    pub remote: Endpoint,
    /// Number of the interface that it is bound to; 0: none.
    pub device: u32,
}

/// A netlink socket in one network namespace.
#[derive(Debug)]
pub struct Diag(OwnedFd);

impl Diag {
    /// Opens one in the network namespace of this thread. Err: the kernel cannot be asked about TCP.
    pub fn open() -> Result<Diag, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        let diag = Diag(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?);
        // Asks for sockets in none of the states, only to see whether the kernel answers.
        diag.ask(NLM_F_DUMP, &[0; REQUEST])?;
        Ok(diag)
    }

    /// Whether the socket is connected with these addresses, and a process holds it.
    pub fn has(&self, wanted: &Wanted) -> Result<bool, Errno> {
        match self.ask(0, &request(wanted)) {
            Ok(answer) => Ok(is_alive(&answer)),
            // No socket with these addresses; another one; or one that has just gone.
            Err(Errno::NOENT | Errno::STALE | Errno::CONNREFUSED) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Sends a request and returns the kernel's answer, which is there when the request returns.
    fn ask(&self, flags: u16, request: &[u8; REQUEST]) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::with_capacity(HEADER + REQUEST);
        bytes.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
        bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend([0; 8]); // sequence number and port
        bytes.extend(request);
        if flags == NLM_F_DUMP {
            (bytes[HEADER], bytes[HEADER + 1]) = (libc::AF_INET as u8, libc::IPPROTO_TCP as u8);
        }
        rustix::io::retry_on_intr(|| rustix::net::send(&self.0, &bytes, SendFlags::empty()))?;
        let mut answer = [0; 1024];
        let (n, _) = rustix::io::retry_on_intr(|| rustix::net::recv(&self.0, &mut answer, RecvFlags::empty()))?;
        parse(&answer[..n])
    }
}

fn request(wanted: &Wanted) -> [u8; REQUEST] {
    let (local, remote) = (wanted.local.to_socket_addr(), wanted.remote.to_socket_addr());
    let mut request = [0; REQUEST];
    // The kernel finds a mapped address as an IPv4 address, whatever the socket's family.
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    (request[0], request[1]) = (family as u8, libc::IPPROTO_TCP as u8);
    request[4..8].copy_from_slice(&u32::MAX.to_ne_bytes()); // any state
    request[8..10].copy_from_slice(&local.port().to_be_bytes());
    request[10..12].copy_from_slice(&remote.port().to_be_bytes());
    put(&mut request[12..28], local.ip());
    put(&mut request[28..44], remote.ip());
    request[44..48].copy_from_slice(&wanted.device.to_ne_bytes());
    request[48..52].copy_from_slice(&(wanted.cookie as u32).to_ne_bytes());
    request[52..56].copy_from_slice(&((wanted.cookie >> 32) as u32).to_ne_bytes());
    request
}

fn put(to: &mut [u8], ip: std::net::IpAddr) {
    match ip {
        std::net::IpAddr::V4(v4) => to[..4].copy_from_slice(&v4.octets()),
        std::net::IpAddr::V6(v6) => to.copy_from_slice(&v6.octets()),
    }
}

/// The first message without its header.
fn parse(bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let (header, rest) = bytes.split_at_checked(HEADER).ok_or(Errno::PROTO)?;
    let len = word(header, 0).and_then(|len| (len as usize).checked_sub(HEADER)).ok_or(Errno::PROTO)?;
    let body = rest.get(..len).ok_or(Errno::PROTO)?;
    match u16::from_ne_bytes([header[4], header[5]]) {
        SOCK_DIAG_BY_FAMILY | NLMSG_DONE => Ok(body.to_vec()),
        NLMSG_ERROR => {
            let error = word(body, 0).map(|e| (e as i32).wrapping_neg()).filter(|e| *e > 0);
            Err(error.map_or(Errno::PROTO, Errno::from_raw_os_error))
        }
        _ => Err(Errno::PROTO),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Whether the socket is connected, and still held by a process (not an orphan).
fn is_alive(answer: &[u8]) -> bool {
    answer.len() >= ANSWER && CONNECTED.contains(&answer[STATE_AT]) && word(answer, INODE_AT) != Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt;
    use std::net::{TcpListener, TcpStream};

    fn wanted(socket: &TcpStream) -> Wanted {
        let cookie = sockopt::socket_cookie(socket).expect("cookie");
        let (local, remote) = (socket.local_addr().expect("local"), socket.peer_addr().expect("remote"));
        Wanted { cookie, local: local.into(), remote: remote.into(), device: 0 }
    }

    #[test]
    fn a_socket_is_found_by_all_of_what_is_wanted_and_by_nothing_less() {
        let diag = Diag::open().expect("tcp_diag");
        for host in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((host, 0)).expect("bind");
            let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
            let (server, _) = listener.accept().expect("accept");
            let (one, other) = (wanted(&client), wanted(&server));
            assert_eq!((diag.has(&one), diag.has(&other)), (Ok(true), Ok(true)), "{host}");
            let wrong = [
                Wanted { cookie: other.cookie, ..one },
                Wanted { cookie: one.cookie ^ 1 << 40, ..one },
                Wanted { local: one.remote, remote: one.local, ..one },
                Wanted { remote: (listener.local_addr().expect("address").ip(), 1).into(), ..one },
            ];
            for wrong in wrong {
                assert_eq!(diag.has(&wrong), Ok(false), "{wrong:?}");
            }
            drop(client);
            assert_eq!((diag.has(&one), diag.has(&other)), (Ok(false), Ok(true)), "closed; half closed");
        }
    }

    #[test]
    fn a_mapped_socket_is_found() {
        let listener = TcpListener::bind("[::]:0").expect("bind");
        let port = listener.local_addr().expect("address").port();
        let _client = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        let (server, _) = listener.accept().expect("accept");
        assert_eq!(Diag::open().expect("tcp_diag").has(&wanted(&server)), Ok(true));
    }

    #[test]
    fn nonsense_is_an_error() {
        for bytes in [&[][..], &[1; HEADER], &[0; HEADER + 4], &[255; 100]] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
