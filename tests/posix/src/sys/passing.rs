//! Passing descriptors over a unix socket (SCM_RIGHTS).

use libc::{c_int, c_void, iovec};

use super::Fd;
use super::errno::outcome;
use super::io::message;

const NUMBER: u32 = size_of::<c_int>() as u32;

/// Room for one descriptor, aligned as a control message must be.
#[repr(align(8))]
struct Control([u8; 32]);

/// Works with a message of one byte and a descriptor.
pub fn with_message<T>(fd: Fd, work: impl FnOnce(&libc::msghdr) -> T) -> T {
    let mut byte = *b"!";
    let mut iov = [iovec { iov_base: byte.as_mut_ptr().cast::<c_void>(), iov_len: 1 }];
    let mut control = Control([0; 32]);
    let mut msg = message(&mut iov);
    msg.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: the control buffer is aligned and has room for one header and one descriptor.
    unsafe {
        msg.msg_controllen = libc::CMSG_SPACE(NUMBER) as usize;
        let header = libc::CMSG_FIRSTHDR(&msg);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(NUMBER) as usize;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(fd);
    }
    work(&msg)
}

/// Sends one byte together with a descriptor; `by_sendmmsg` chooses the call.
pub fn send_fd(channel: Fd, fd: Fd, by_sendmmsg: bool) {
    let sent = with_message(fd, |msg| {
        let mut many = [libc::mmsghdr { msg_hdr: *msg, msg_len: 0 }];
        // SAFETY: the message and all it points to live until the call returns.
        outcome(unsafe {
            match by_sendmmsg {
                true => libc::sendmmsg(channel, many.as_mut_ptr(), 1, 0) as isize,
                false => libc::sendmsg(channel, msg, 0),
            }
        })
    });
    assert_eq!(sent, Ok(1), "passing a descriptor");
}

/// Receives one byte and its descriptor, which is closed on exec.
pub fn receive_fd(channel: Fd) -> Fd {
    let mut byte = [0u8];
    let mut iov = [iovec { iov_base: byte.as_mut_ptr().cast::<c_void>(), iov_len: 1 }];
    let mut control = Control([0; 32]);
    let mut msg = message(&mut iov);
    msg.msg_control = control.0.as_mut_ptr().cast();
    msg.msg_controllen = control.0.len();
    // SAFETY: the message and all it points to live until the call returns; the header is looked
    // at only if the kernel wrote one, of the type that carries descriptors.
    unsafe {
        let got = outcome(libc::recvmsg(channel, &mut msg, libc::MSG_CMSG_CLOEXEC));
        assert_eq!(got, Ok(1), "receiving a passed descriptor");
        let header = libc::CMSG_FIRSTHDR(&msg);
        assert!(!header.is_null(), "no descriptor came with the byte");
        assert_eq!((*header).cmsg_type, libc::SCM_RIGHTS);
        libc::CMSG_DATA(header).cast::<c_int>().read_unaligned()
    }
}
