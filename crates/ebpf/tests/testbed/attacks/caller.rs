//! A program without privileges, and calls that the standard library lacks.

use rustix::thread::capabilities;
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Owner, as_owner};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

pub const NOBODY: Owner = (65534, 65534);
/// On one machine, anything that is not refused takes less.
pub const SOON: Duration = Duration::from_millis(500);

/// Runs `work` in the pod, as a user without capabilities.
pub fn as_nobody<T: Send>(pod: &Pod, work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        let held = capabilities(None).unwrap();
        assert!(held.effective.is_empty() && held.permitted.is_empty(), "{held:?}");
        work()
    };
    pod.namespace.run(|| as_owner(NOBODY, work))
}

/// setsockopt(2)
pub fn set_option(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: `value` is as long as said, and lives until the call returns.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub fn set_number(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: i32) -> io::Result<()> {
    set_option(socket, level, name, &value.to_ne_bytes())
}

/// sendmsg(2) of one byte with a control message. Without an address it goes to the peer.
pub fn send_with(
    socket: &impl AsRawFd,
    to: Option<SocketAddr>,
    (level, kind): (libc::c_int, libc::c_int),
    data: &[u8],
) -> io::Result<()> {
    let control = control_message(level, kind, data);
    let mut text = *b"?";
    let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    let mut send = |address: *const libc::c_void, length| {
        // SAFETY: integers and pointers only, for which zeros are values.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = address.cast_mut();
        header.msg_namelen = length;
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len() * size_of::<u64>();
        // SAFETY: all that the header points at lives until the call returns, and is as long as said.
        match unsafe { libc::sendmsg(socket.as_raw_fd(), &header, 0) } {
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    match to {
        None => send(std::ptr::null(), 0),
        Some(to) => {
            use rustix::net::addr::SocketAddrArg;
            // SAFETY: the address is only read, before this returns.
            unsafe { to.with_sockaddr(|place, length| send(place.cast(), length)) }
        }
    }
}

/// A control message as in cmsg(3), in words, so that it is aligned.
pub fn control_message(level: libc::c_int, kind: libc::c_int, data: &[u8]) -> Vec<u64> {
    let header = size_of::<libc::cmsghdr>();
    let mut bytes = (header + data.len()).to_ne_bytes().to_vec();
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(size_of::<u64>()), 0);
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// The errno of a call that must fail.
pub fn error_of<T: std::fmt::Debug>(outcome: io::Result<T>) -> i32 {
    outcome.expect_err("the call must fail").raw_os_error().expect("the error is the kernel's")
}
