//! Socket calls that return process ids which may be 0.
//!
//! A peer in another pid namespace has pid 0 here, while rustix's `UCred` holds a non-zero pid. So these calls are made through
//! libc. The socket options that rustix does not know are here, too.

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;
use std::mem::{MaybeUninit, size_of};

/// Credentials of the sender of a record, or of the maker of a connection, from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// 0 if its pid namespace is not visible from here.
    pub pid: u32,
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
}

/// Result of one recvmsg.
pub struct Received {
    pub len: usize,
    pub fd: Option<OwnedFd>,
    pub sender: Option<Sender>,
    /// The kernel dropped descriptors: too many, or no room in our table.
    pub fds_lost: bool,
}

/// Control buffer: one descriptor and one set of credentials; aligned as a `cmsghdr`.
#[repr(align(8))]
struct Control([u8; 128]);

/// recvmsg without blocking, descriptors close-on-exec.
pub fn recv(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([0; 128]);
    let mut iov = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: all zero is a valid `msghdr`.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    // SAFETY: every pointer in `header` covers memory that outlives the call, with its true length.
    let n = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut got =
        Received { len: n as usize, fd: None, sender: None, fds_lost: header.msg_flags & libc::MSG_CTRUNC != 0 };
    read_control(&header, &mut got);
    Ok(got)
}

/// Takes the descriptors and the credentials out of the control buffer; surplus descriptors are closed.
fn read_control(header: &libc::msghdr, got: &mut Received) {
    // SAFETY: `header` was filled by recvmsg; the CMSG macros stay within msg_controllen.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: non-null from the CMSG macros: a whole header lies there.
        let (level, kind, len) = unsafe { ((*next).cmsg_level, (*next).cmsg_type, (*next).cmsg_len) };
        // SAFETY: as above.
        let data = unsafe { libc::CMSG_DATA(next) };
        // SAFETY: CMSG_LEN only computes.
        let size = len.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            for i in 0..size / size_of::<libc::c_int>() {
                // SAFETY: within the message's data; the kernel gave us this descriptor, nobody else owns it.
                let fd = unsafe { OwnedFd::from_raw_fd(data.cast::<libc::c_int>().add(i).read_unaligned()) };
                got.fds_lost |= got.fd.is_some();
                got.fd = Some(fd);
            }
        } else if level == libc::SOL_SOCKET && kind == libc::SCM_CREDENTIALS && size >= size_of::<libc::ucred>() {
            // SAFETY: the data holds a whole `ucred`.
            let cred = unsafe { data.cast::<libc::ucred>().read_unaligned() };
            got.sender = Some(Sender { pid: cred.pid as u32, uid: cred.uid, gid: cred.gid });
        }
        // SAFETY: `next` is a header inside this control buffer.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
}

/// An option whose value is plain integers.
fn option<T: Copy>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has room for `len` bytes.
    let failed = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every T used below is plain integers, for which zero bytes and any bytes are valid.
    Ok(unsafe { value.assume_init() })
}

/// Credentials of the other end of a connected Unix socket, at the time of the connect.
pub fn peer(fd: BorrowedFd<'_>) -> io::Result<Sender> {
    let cred: libc::ucred = option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(Sender { pid: cred.pid as u32, uid: cred.uid, gid: cred.gid })
}

/// A pidfd of the process at the other end of a connected Unix socket (Linux 6.5).
pub fn peer_pidfd(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let pidfd: libc::c_int = option(fd, libc::SOL_SOCKET, SO_PEERPIDFD)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// The number of the network namespace that a socket belongs to (Linux 5.14).
pub fn netns_cookie(fd: BorrowedFd<'_>) -> io::Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    option(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE)
}

/// The true peer of a socket that is told another one (crates/bpf/src/true_peer.h): address (IPv4 mapped) and port, in network
/// byte order. Err: the socket is told its true peer, or no eBPF program answers.
pub fn true_peer(fd: BorrowedFd<'_>) -> io::Result<([u8; 16], u16)> {
    const SOL_SIDESTEP: libc::c_int = 0x5353;
    const TRUE_PEER: libc::c_int = 1;
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Peer {
        ip: [u8; 16],
        port: u16,
        pad: u16,
    }
    let peer: Peer = option(fd, SOL_SIDESTEP, TRUE_PEER)?;
    Ok((peer.ip, u16::from_be(peer.port)))
}

/// The network interface a socket is bound to; 0: none.
pub fn bound_device(fd: BorrowedFd<'_>) -> io::Result<u32> {
    const SO_BINDTOIFINDEX: libc::c_int = 62;
    option(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX)
}

/// SO_LINGER: seconds that close() of this socket may block; 0: it does not.
pub fn linger_seconds(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let linger: libc::linger = option(fd, libc::SOL_SOCKET, libc::SO_LINGER)?;
    Ok(if linger.l_onoff != 0 { linger.l_linger as u32 } else { 0 })
}

/// Whether the queue of this socket holds no descriptor, so that its close cannot block. Call this only for a socket into which
/// nothing more can be sent. Removes records without descriptors, and looks at the first few only.
pub fn holds_no_descriptor(fd: BorrowedFd<'_>) -> bool {
    const RECORDS: usize = 16;
    for _ in 0..RECORDS {
        match next_record(fd, libc::MSG_PEEK) {
            Some(Next::End) => return true,
            Some(Next::Plain) if next_record(fd, 0).is_some() => {}
            _ => return false,
        }
    }
    false
}

/// Kind of the next record.
enum Next {
    End,
    /// A record without a descriptor.
    Plain,
    Descriptors,
}

/// Receives with room for credentials only. If there is more, the kernel reports that (MSG_CTRUNC) and keeps the descriptors.
/// None: an error.
fn next_record(fd: BorrowedFd<'_>, flags: libc::c_int) -> Option<Next> {
    #[repr(align(8))]
    struct Credentials([u8; 32]);
    let (mut control, mut byte) = (Credentials([0; 32]), 0u8);
    let mut iov = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zero is a valid `msghdr`.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    // SAFETY: every pointer in `header` covers memory that outlives the call, with its true length.
    let n =
        unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
    match n {
        ..0 => None,
        // An empty record has credentials; the end of the stream has none.
        0 if header.msg_controllen == 0 => Some(Next::End),
        _ if header.msg_flags & libc::MSG_CTRUNC != 0 => Some(Next::Descriptors),
        _ => Some(Next::Plain),
    }
}
