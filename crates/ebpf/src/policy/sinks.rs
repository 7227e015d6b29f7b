//! Sinks: sockets that get what policies drop. A packet for one of them ends at its socket filter, without an answer. Sinks
//! serve all network namespaces, but only while the agent holds them: without them a drop becomes a refusal.

use crate::capture::layout::{ROLE_SINK, listener_key};
use crate::error::{Doing, Result};
use crate::layout::MapData;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Bound to the loopback; their filters let nothing in.
pub struct Sinks {
    _sockets: Vec<OwnedFd>,
}

/// In the order of their places. One listener for both families would have to be bound to ::, so there is one for each family.
const KINDS: [(IpAddr, SocketType); 4] = [
    (IpAddr::V4(Ipv4Addr::LOCALHOST), SocketType::STREAM),
    (IpAddr::V4(Ipv4Addr::LOCALHOST), SocketType::DGRAM),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), SocketType::STREAM),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), SocketType::DGRAM),
];

impl Sinks {
    /// A family that the machine lacks gets no sinks, and has no packets.
    pub fn new(listeners: &MapHandle) -> Result<Sinks> {
        let mut sockets = Vec::new();
        for (place, (at, kind)) in (0..).zip(KINDS) {
            let Ok(socket) = sink(at, kind) else { continue };
            let key = listener_key { netns: 0, role: ROLE_SINK, place };
            let number = u64::from(socket.as_raw_fd().unsigned_abs());
            let put = listeners.update(key.bytes(), number.bytes(), MapFlags::ANY);
            put.doing("map listeners: put the socket that takes what is dropped")?;
            sockets.push(socket);
        }
        Ok(Sinks { _sockets: sockets })
    }
}

fn sink(at: IpAddr, kind: SocketType) -> std::io::Result<OwnedFd> {
    let family = if at.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket(family, kind, None)?;
    refuse_all(&socket)?;
    bind(&socket, &SocketAddr::new(at, 0))?;
    if kind == SocketType::STREAM {
        listen(&socket, 1)?;
    }
    Ok(socket)
}

/// A filter of one instruction, which accepts 0 bytes of every packet.
fn refuse_all(socket: &OwnedFd) -> std::io::Result<()> {
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut nothing = libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &mut nothing };
    // SAFETY: the kernel copies `program` and the one instruction that it points to, both alive during the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
