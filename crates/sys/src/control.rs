//! The control socket: AF_UNIX, SOCK_SEQPACKET, records with at most one descriptor.

use crate::{Errno, Result, call, fd};
use sidestep_abi::msg::{LEN, Msg};

/// Connects to the broker at `address` (`@name`: abstract; otherwise a path). Refuses a broker that is neither our own user's
/// nor root's, since any user can take an abstract name, unless its path is on a read-only mount: whoever mounted it for this program
/// has put the socket there. In a user namespace the host's root is a user without a number.
pub fn connect(address: &[u8]) -> Result<i32> {
    fd::check_limit()?;
    let (mut name, len) = sockaddr(address)?;
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory involved.
    let s = unsafe { call(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) }? as i32;
    let s = fd::raise(s)?;
    // SAFETY: `name` is alive and at least `len` long.
    let connected = unsafe { call(libc::SYS_connect, [s as usize, &raw mut name as usize, len, 0, 0, 0]) };
    // Records that are sent before the broker accepts must carry our credentials, too.
    let checked = connected.and_then(|_| pass_credentials(s)).and_then(|_| check_owner(s, address));
    checked.inspect_err(|_| fd::close(s))?;
    Ok(s)
}

fn pass_credentials(s: i32) -> Result<usize> {
    let on = 1i32;
    let args = [s as usize, libc::SOL_SOCKET as usize, libc::SO_PASSCRED as usize, &raw const on as usize, 4, 0];
    // SAFETY: one int, alive.
    unsafe { call(libc::SYS_setsockopt, args) }
}

fn check_owner(s: i32, address: &[u8]) -> Result<()> {
    let uid = crate::tcp::option::<[u32; 3]>(s, libc::SOL_SOCKET, libc::SO_PEERCRED)?[1];
    let is_believed = uid == 0 || uid == crate::process::euid() || is_on_read_only_mount(address);
    if is_believed { Ok(()) } else { Err(Errno(libc::EPERM)) }
}

/// Whether nobody in this mount namespace can put another file at this path. False for an abstract name.
fn is_on_read_only_mount(address: &[u8]) -> bool {
    const ST_RDONLY: u64 = 1;
    /// The word `f_flags` of struct statfs with 64-bit words (asm-generic/statfs.h).
    const FLAGS: usize = 10;
    let mut path = [0u8; 128];
    if address.first() != Some(&b'/') || address.len() >= path.len() {
        return false;
    }
    path[..address.len()].copy_from_slice(address);
    let mut about = [0u64; 15];
    // SAFETY: the path ends with a zero byte; struct statfs has 15 words; both are alive.
    let asked = unsafe { call(libc::SYS_statfs, [path.as_ptr() as usize, about.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    asked.is_ok() && about[FLAGS] & ST_RDONLY != 0
}

fn sockaddr(address: &[u8]) -> Result<(libc::sockaddr_un, usize)> {
    // SAFETY: integers: all zero is a value.
    let mut name: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    name.sun_family = libc::AF_UNIX as u16;
    if address.is_empty() || address.len() >= name.sun_path.len() {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (to, from) in name.sun_path.iter_mut().zip(address) {
        *to = *from as libc::c_char;
    }
    let is_abstract = address[0] == b'@';
    if is_abstract {
        name.sun_path[0] = 0;
    }
    Ok((name, 2 + address.len() + usize::from(!is_abstract)))
}

/// Room for one descriptor and one set of credentials.
#[repr(C, align(8))]
struct Ancillary([u8; 64]);

/// Sends one record, with a descriptor if there is one. Never blocks; EAGAIN: the socket is full.
pub fn send(socket: i32, msg: &Msg, with: Option<i32>) -> Result<()> {
    let bytes = msg.to_bytes();
    let mut iov = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    let mut space = Ancillary([0; 64]);
    // SAFETY: integers and null pointers: all zero is a value.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    if let Some(passed) = with {
        header.msg_control = space.0.as_mut_ptr().cast();
        // SAFETY: `space` is aligned and large enough for one descriptor; the pointers stay inside it.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let c = libc::CMSG_FIRSTHDR(&raw const header);
            (*c).cmsg_level = libc::SOL_SOCKET;
            (*c).cmsg_type = libc::SCM_RIGHTS;
            (*c).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(c).cast::<i32>().write_unaligned(passed);
        }
    }
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    // SAFETY: header, iovec, bytes and control space are alive.
    unsafe { call(libc::SYS_sendmsg, [socket as usize, &raw const header as usize, flags, 0, 0, 0]) }.map(drop)
}

/// Receives one record. EAGAIN: there is none; EPIPE: the broker is gone.
pub fn receive(socket: i32) -> Result<(Msg, Option<i32>)> {
    let mut bytes = [0u8; LEN];
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: LEN };
    let mut space = Ancillary([0; 64]);
    // SAFETY: integers and null pointers: all zero is a value.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    header.msg_control = space.0.as_mut_ptr().cast();
    header.msg_controllen = space.0.len();
    let flags = (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as usize;
    // SAFETY: header, iovec, bytes and control space are alive and writable.
    let n = unsafe { call(libc::SYS_recvmsg, [socket as usize, &raw mut header as usize, flags, 0, 0, 0]) }?;
    let passed = descriptor(&header);
    match Msg::from_bytes(&bytes[..n]) {
        Some(msg) => Ok((msg, passed)),
        None => {
            passed.inspect(|f| fd::close(*f));
            Err(Errno(libc::EPIPE))
        }
    }
}

fn descriptor(header: &libc::msghdr) -> Option<i32> {
    // SAFETY: the kernel has filled the control space that `header` names; the macros stay inside it.
    unsafe {
        let mut c = libc::CMSG_FIRSTHDR(header);
        while !c.is_null() {
            if (*c).cmsg_level == libc::SOL_SOCKET && (*c).cmsg_type == libc::SCM_RIGHTS {
                return Some(libc::CMSG_DATA(c).cast::<i32>().read_unaligned());
            }
            c = libc::CMSG_NXTHDR(header, c);
        }
    }
    None
}
