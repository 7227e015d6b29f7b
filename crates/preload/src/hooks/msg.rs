//! recvmsg, sendmsg and their many-message forms; and descriptors that are passed to other processes.

use super::conn;
use super::rw::vector;
use crate::io::{iov, recv as receive, send as transmit};
use crate::{arena, life, next};
use core::ffi::{c_int, c_uint};
use libc::{mmsghdr, msghdr, ssize_t, timespec};
use sidestep_abi::Reason;

pub unsafe fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::recvmsg(fd, msg, flags) };
    // SAFETY: the program's own header, if it gave one.
    let (Some(c), Some(m)) = (conn(fd), unsafe { msg.as_mut() }) else { return native() };
    let attached = arena::conn(c).is_attached();
    // SAFETY: the program's own vector.
    let got = receive::recv(c, fd, unsafe { vector(m.msg_iov, m.msg_iovlen) }, flags, native);
    if got >= 0 && attached && flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) == 0 {
        m.msg_namelen = 0;
        m.msg_controllen = 0;
        m.msg_flags = 0;
    }
    got
}

pub unsafe fn recvmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
    if conn(fd).is_none() || msgs.is_null() || !timeout.is_null() {
        // SAFETY: the program's own call. With a timeout only natively: such a reader is no stream reader.
        return unsafe { natively_many(fd, msgs, n, flags, timeout) };
    }
    let mut rest = flags & !libc::MSG_WAITFORONE;
    for i in 0..n as usize {
        // SAFETY: the program vouches for `n` entries.
        let entry = unsafe { &mut *msgs.add(i) };
        // SAFETY: as above.
        let got = unsafe { recvmsg(fd, &raw mut entry.msg_hdr, rest) };
        if got < 0 {
            return if i > 0 { i as c_int } else { -1 };
        }
        entry.msg_len = got as u32;
        if flags & libc::MSG_WAITFORONE != 0 {
            rest |= libc::MSG_DONTWAIT;
        }
    }
    n as c_int
}

unsafe fn natively_many(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
    if let Some(c) = conn(fd) {
        life::rx_to_kernel(arena::conn(c), Reason::SocketOption);
    }
    // SAFETY: the program's own call.
    unsafe { next::recvmmsg(fd, msgs, n, flags, timeout) }
}

pub unsafe fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::sendmsg(fd, msg, flags) };
    // SAFETY: the program's own header, if it gave one.
    let Some(m) = (unsafe { msg.as_ref() }) else { return native() };
    let Some(c) = conn(fd) else {
        if m.msg_controllen > 0 {
            surrender_passed(m);
        }
        return native();
    };
    // SAFETY: the program's own vector.
    let mut buffers = transmit::Buffers(unsafe { vector(m.msg_iov, m.msg_iovlen) });
    transmit::send(c, fd, &mut buffers, flags, native)
}

/// Connections that are being passed to another process: whoever receives them reads from the kernel.
#[cold]
fn surrender_passed(m: &msghdr) {
    // SAFETY: the program's own control data; the macros stay inside of it.
    unsafe {
        let mut c = libc::CMSG_FIRSTHDR(m);
        while !c.is_null() {
            if (*c).cmsg_level == libc::SOL_SOCKET && (*c).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*c).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for i in 0..bytes / 4 {
                    let passed = libc::CMSG_DATA(c).cast::<c_int>().add(i).read_unaligned();
                    if let Some(index) = conn(passed) {
                        crate::errno::keep(|| life::surrender(arena::conn(index), passed, Reason::Passed));
                    }
                }
            }
            c = libc::CMSG_NXTHDR(m, c);
        }
    }
}

pub unsafe fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int {
    if msgs.is_null() {
        // SAFETY: the program's own call.
        return unsafe { next::sendmmsg(fd, msgs, n, flags) };
    }
    if conn(fd).is_none() {
        for i in 0..n as usize {
            // SAFETY: the program vouches for `n` entries.
            let m = unsafe { &(*msgs.add(i)).msg_hdr };
            if m.msg_controllen > 0 {
                surrender_passed(m);
            }
        }
        // SAFETY: the program's own call.
        return unsafe { next::sendmmsg(fd, msgs, n, flags) };
    }
    for i in 0..n as usize {
        // SAFETY: as above.
        let entry = unsafe { &mut *msgs.add(i) };
        // SAFETY: as above.
        let sent = unsafe { sendmsg(fd, &raw const entry.msg_hdr, flags) };
        if sent < 0 {
            return if i > 0 { i as c_int } else { -1 };
        }
        entry.msg_len = sent as u32;
        // SAFETY: the program's own vector, which the call that was just made has read.
        let total = iov::total(unsafe { vector(entry.msg_hdr.msg_iov, entry.msg_hdr.msg_iovlen) });
        if (sent as usize) < total {
            return i as c_int + 1; // what follows must not overtake the rest of this one
        }
    }
    n as c_int
}
