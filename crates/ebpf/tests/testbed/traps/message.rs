//! Messages with addresses, in the form of the system calls.

use crate::sockets::answer;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, SocketAddr};
use std::ptr;

/// One message with its own address, for sendmmsg(2) and recvmmsg(2).
pub struct Message {
    address: libc::sockaddr_storage,
    text: [u8; 64],
    pub length: usize,
}

impl Message {
    pub fn empty() -> Message {
        // SAFETY: a sockaddr_storage is integers only, for which zeros are values.
        Message { address: unsafe { MaybeUninit::zeroed().assume_init() }, text: [0; 64], length: 64 }
    }

    pub fn to(address: SocketAddr) -> Message {
        let mut message = Message::empty();
        message.text[0] = b'?';
        message.length = 1;
        let port = address.port().to_be();
        match address.ip() {
            IpAddr::V4(v4) => {
                let s_addr = u32::from_ne_bytes(v4.octets());
                let sin_family = libc::AF_INET as libc::sa_family_t;
                let value = libc::sockaddr_in {
                    sin_family,
                    sin_port: port,
                    sin_addr: libc::in_addr { s_addr },
                    sin_zero: [0; 8],
                };
                // SAFETY: a sockaddr_storage has room for an address of any family, and its alignment.
                unsafe { ptr::from_mut(&mut message.address).cast::<libc::sockaddr_in>().write(value) };
            }
            IpAddr::V6(v6) => {
                let sin6_family = libc::AF_INET6 as libc::sa_family_t;
                let sin6_addr = libc::in6_addr { s6_addr: v6.octets() };
                let value =
                    libc::sockaddr_in6 { sin6_family, sin6_port: port, sin6_flowinfo: 0, sin6_addr, sin6_scope_id: 0 };
                // SAFETY: as above.
                unsafe { ptr::from_mut(&mut message.address).cast::<libc::sockaddr_in6>().write(value) };
            }
        }
        message
    }

    fn from(&self) -> SocketAddr {
        let address = ptr::from_ref(&self.address);
        if self.address.ss_family == libc::AF_INET as libc::sa_family_t {
            // SAFETY: the kernel has written an address of this family there.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read() };
            return SocketAddr::new(v4.sin_addr.s_addr.to_ne_bytes().into(), u16::from_be(v4.sin_port));
        }
        // SAFETY: as above; there are only these two.
        let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read() };
        SocketAddr::new(v6.sin6_addr.s6_addr.into(), u16::from_be(v6.sin6_port))
    }

    pub fn heard(&self) -> (SocketAddr, IpAddr) {
        (self.from(), answer(&self.text[..self.length]))
    }
}

/// Calls `work` with headers that refer to the messages, and takes over the received lengths.
pub fn with_headers<T>(messages: &mut [Message], work: impl FnOnce(&mut [libc::mmsghdr]) -> T) -> T {
    let mut parts: Vec<libc::iovec> =
        messages.iter_mut().map(|m| libc::iovec { iov_base: m.text.as_mut_ptr().cast(), iov_len: m.length }).collect();
    let mut headers: Vec<libc::mmsghdr> = messages
        .iter_mut()
        .zip(&mut parts)
        .map(|(message, part)| {
            // SAFETY: integers and pointers only, for which zeros are values.
            let mut header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
            header.msg_hdr.msg_name = ptr::from_mut(&mut message.address).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header
        })
        .collect();
    let outcome = work(&mut headers);
    for (message, header) in messages.iter_mut().zip(&headers) {
        message.length = header.msg_len as usize;
    }
    outcome
}
