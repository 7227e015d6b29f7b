//! Sockets: addresses, making connections, options.
//!
//! `under_NAME` is glibc's alias `__NAME`.

#![allow(missing_docs)] // A function with the name of a call makes this call.

use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr};

use libc::{c_int, c_void, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use super::errno::{Outcome, outcome};
use super::{Fd, glibc};
use crate::hosts::{self, Side};

/// The families in which cases connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// AF_INET
    V4,
    /// AF_INET6
    V6,
}

impl Family {
    /// AF_INET or AF_INET6.
    pub fn code(self) -> c_int {
        match self {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        }
    }
}

/// A socket address as the kernel takes and gives it.
#[derive(Clone, Copy)]
pub struct Addr {
    storage: sockaddr_storage,
    len: socklen_t,
}

impl Addr {
    /// Of family AF_UNSPEC, with room for any address.
    pub fn empty() -> Addr {
        // SAFETY: all-zero is a valid sockaddr_storage of family AF_UNSPEC.
        Addr { storage: unsafe { zeroed() }, len: size_of::<sockaddr_storage>() as socklen_t }
    }

    /// Of servers: loopback, unless they are on a host of their own ([`hosts`]). Port 0 lets the kernel choose.
    pub fn server(family: Family, port: u16) -> Addr {
        Addr::of(hosts::addresses(Side::Server), family, port)
    }

    /// Of clients, as [`Addr::server`].
    pub fn client(family: Family, port: u16) -> Addr {
        Addr::of(hosts::addresses(Side::Client), family, port)
    }

    /// A further IPv4 address of clients.
    pub fn other_client(port: u16) -> Addr {
        Addr::v4(hosts::other_address_of_clients().octets(), port)
    }

    /// The servers' IPv4 address, for a socket of AF_INET6.
    pub fn mapped_server(port: u16) -> Addr {
        Addr::v6(hosts::addresses(Side::Server).0.to_ipv6_mapped(), port)
    }

    fn of((v4, v6): (Ipv4Addr, Ipv6Addr), family: Family, port: u16) -> Addr {
        match family {
            Family::V4 => Addr::v4(v4.octets(), port),
            Family::V6 => Addr::v6(v6, port),
        }
    }

    /// `port` is in host order.
    pub fn v4(ip: [u8; 4], port: u16) -> Addr {
        let mut addr = Addr::empty();
        // SAFETY: sockaddr_storage is large and aligned enough for every address family.
        let sin = unsafe { &mut *(&raw mut addr.storage).cast::<sockaddr_in>() };
        sin.sin_family = libc::AF_INET as libc::sa_family_t;
        sin.sin_port = port.to_be();
        sin.sin_addr.s_addr = u32::from_ne_bytes(ip);
        addr.len = size_of::<sockaddr_in>() as socklen_t;
        addr
    }

    /// `port` is in host order.
    pub fn v6(ip: Ipv6Addr, port: u16) -> Addr {
        let mut addr = Addr::empty();
        // SAFETY: sockaddr_storage is large and aligned enough for every address family.
        let sin6 = unsafe { &mut *(&raw mut addr.storage).cast::<sockaddr_in6>() };
        sin6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        sin6.sin6_port = port.to_be();
        sin6.sin6_addr.s6_addr = ip.octets();
        addr.len = size_of::<sockaddr_in6>() as socklen_t;
        addr
    }

    /// In both families the port is the second 16-bit word.
    pub fn port(&self) -> u16 {
        // SAFETY: both address families keep the port at this place; the storage is larger.
        u16::from_be(unsafe { (&raw const self.storage).cast::<u16>().add(1).read() })
    }

    /// The IP address; one of IPv4 as an IPv6 socket has it.
    pub fn ip(&self) -> Ipv6Addr {
        // SAFETY: the storage is large and aligned enough for both families.
        unsafe {
            match libc::c_int::from(self.storage.ss_family) {
                libc::AF_INET6 => (*(&raw const self.storage).cast::<sockaddr_in6>()).sin6_addr.s6_addr.into(),
                _ => {
                    let bytes = (*(&raw const self.storage).cast::<sockaddr_in>()).sin_addr.s_addr.to_ne_bytes();
                    Ipv4Addr::from(bytes).to_ipv6_mapped()
                }
            }
        }
    }

    /// The address as the kernel's bytes, to compare two of them.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the length is that of the address within the storage.
        unsafe { std::slice::from_raw_parts((&raw const self.storage).cast(), self.len as usize) }
    }

    /// Valid as long as this value; [`Addr::size`] says how many bytes count.
    pub fn as_ptr(&self) -> *const sockaddr {
        (&raw const self.storage).cast()
    }

    /// The length that calls take, and have returned.
    pub fn size(&self) -> socklen_t {
        self.len
    }

    /// Lets a call that reports an address fill this one in.
    fn filled(mut call: impl FnMut(*mut sockaddr, *mut socklen_t) -> c_int) -> (Outcome, Addr) {
        let mut addr = Addr::empty();
        let ret = call((&raw mut addr.storage).cast(), &mut addr.len);
        (outcome(ret), addr)
    }
}

/// A client's. `kind` is SOCK_STREAM's flags: SOCK_NONBLOCK, SOCK_CLOEXEC or 0.
pub fn socket(family: Family, kind: c_int) -> Fd {
    // SAFETY: no pointers.
    outcome(unsafe { libc::socket(family.code(), libc::SOCK_STREAM | kind, 0) }).expect("socket") as Fd
}

/// As [`socket`], on the host of servers.
pub fn server_socket(family: Family, kind: c_int) -> Fd {
    hosts::on_servers(|| socket(family, kind))
}

pub fn bind(fd: Fd, addr: &Addr) -> Outcome {
    // SAFETY: pointer and length describe a live address.
    outcome(unsafe { libc::bind(fd, addr.as_ptr(), addr.len) })
}

pub fn listen(fd: Fd, backlog: c_int) -> Outcome {
    // SAFETY: no pointers.
    outcome(unsafe { libc::listen(fd, backlog) })
}

pub fn connect(fd: Fd, addr: &Addr) -> Outcome {
    // SAFETY: pointer and length describe a live address.
    outcome(unsafe { libc::connect(fd, addr.as_ptr(), addr.len) })
}

pub fn under_connect(fd: Fd, addr: &Addr) -> Outcome {
    // SAFETY: pointer and length describe a live address.
    outcome(unsafe { glibc::__connect(fd, addr.as_ptr(), addr.len) })
}

pub fn accept(fd: Fd) -> (Outcome, Addr) {
    // SAFETY: the pointers describe a live storage and its length.
    Addr::filled(|addr, len| unsafe { libc::accept(fd, addr, len) })
}

pub fn accept4(fd: Fd, flags: c_int) -> Outcome {
    // SAFETY: null asks for no address.
    outcome(unsafe { libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

pub fn getsockname(fd: Fd) -> Addr {
    own_address(fd).expect("getsockname")
}

/// As [`getsockname`], which may be forbidden.
pub fn own_address(fd: Fd) -> Result<Addr, super::errno::Errno> {
    // SAFETY: the pointers describe a live storage and its length.
    let (ret, addr) = Addr::filled(|addr, len| unsafe { libc::getsockname(fd, addr, len) });
    ret.map(|_| addr)
}

pub fn getpeername(fd: Fd) -> Result<Addr, super::errno::Errno> {
    // SAFETY: the pointers describe a live storage and its length.
    let (ret, addr) = Addr::filled(|addr, len| unsafe { libc::getpeername(fd, addr, len) });
    ret.map(|_| addr)
}

pub fn shutdown(fd: Fd, how: c_int) -> Outcome {
    // SAFETY: no pointers.
    outcome(unsafe { libc::shutdown(fd, how) })
}

/// Sets an option whose value is any plain C value.
pub fn set_option<T>(fd: Fd, level: c_int, name: c_int, value: &T) -> Outcome {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: pointer and length describe a live value, which the call only reads.
    outcome(unsafe { libc::setsockopt(fd, level, name, (value as *const T).cast(), len) })
}

/// Reads an option whose value is a plain integer.
pub fn int_option(fd: Fd, level: c_int, name: c_int) -> c_int {
    let mut value: c_int = -1;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: pointer and length describe a live integer.
    let ret = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast::<c_void>(), &mut len) };
    outcome(ret).expect("getsockopt");
    value
}

/// Reads and clears the socket's pending error.
pub fn take_error(fd: Fd) -> c_int {
    int_option(fd, libc::SOL_SOCKET, libc::SO_ERROR)
}

/// SO_LINGER as (on, seconds).
pub fn linger(fd: Fd) -> (c_int, c_int) {
    let mut linger = libc::linger { l_onoff: -1, l_linger: -1 };
    let mut len = size_of::<libc::linger>() as socklen_t;
    // SAFETY: value and length are alive.
    let ret = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw mut linger).cast(), &mut len) };
    outcome(ret).expect("SO_LINGER");
    (linger.l_onoff, linger.l_linger)
}

/// SO_LINGER: close() waits so many seconds; 0: it resets the connection.
pub fn set_linger(fd: Fd, seconds: c_int) {
    let linger = libc::linger { l_onoff: 1, l_linger: seconds };
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger).expect("SO_LINGER");
}

/// SO_RCVTIMEO or SO_SNDTIMEO.
pub fn set_timeout(fd: Fd, name: c_int, ms: i64) {
    let time = libc::timeval { tv_sec: ms / 1000, tv_usec: ms % 1000 * 1000 };
    set_option(fd, libc::SOL_SOCKET, name, &time).expect("SO_RCVTIMEO or SO_SNDTIMEO");
}

/// TCP_NODELAY: small writes are not held back.
pub fn set_nodelay(fd: Fd) {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1).expect("TCP_NODELAY");
}

/// TCP_INFO, whole.
pub fn tcp_info(fd: Fd) -> libc::tcp_info {
    // SAFETY: all-zero is a valid tcp_info, which the call fills in.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut len = size_of_val(&info) as socklen_t;
    // SAFETY: pointer and length describe a live value.
    let ret = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut len) };
    outcome(ret).expect("TCP_INFO");
    assert_eq!(len as usize, size_of_val(&info), "TCP_INFO fills as much as was asked for");
    info
}
