//! Reading and writing: one safe function for each libc call that moves bytes.
//!
//! `under_NAME` is glibc's alias `__NAME`, `NAME_chk` its checked twin, and `syscall_NAME` goes past libc's function. Calls over an
//! iovec get the buffer in [`pieces`].

#![allow(missing_docs)] // A function with the name of a call makes this call.

use std::ptr::{null, null_mut};

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr};

use super::errno::{Outcome, outcome};
use super::{Fd, glibc};

/// Cuts a buffer into uneven pieces, one of them empty, for the calls that take an iovec.
pub fn pieces(buf: &mut [u8]) -> [iovec; 4] {
    let cuts = [0, buf.len() / 7, buf.len() / 7, buf.len() / 2, buf.len()];
    let base = buf.as_mut_ptr();
    std::array::from_fn(|i| iovec {
        // SAFETY: every cut lies within the buffer.
        iov_base: unsafe { base.add(cuts[i]) }.cast(),
        iov_len: cuts[i + 1] - cuts[i],
    })
}

/// The same for a buffer that is only read; no call made with the result writes to it.
pub fn const_pieces(buf: &[u8]) -> [iovec; 4] {
    // SAFETY: the slice is used to compute addresses only, nothing is written through it.
    pieces(unsafe { std::slice::from_raw_parts_mut(buf.as_ptr().cast_mut(), buf.len()) })
}

/// A header with these pieces, and without an address or control data.
pub fn message(iov: &mut [iovec]) -> msghdr {
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths.
    let mut msg: msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov.as_mut_ptr();
    msg.msg_iovlen = iov.len();
    msg
}

/// A function over one mutable buffer, made from a libc call over its pointer and length.
macro_rules! read_calls {
    ($($name:ident($fd:ident, $p:ident, $n:ident $(, $arg:ident: $ty:ty)*) = $call:expr;)*) => { $(
        pub fn $name($fd: Fd, buf: &mut [u8] $(, $arg: $ty)*) -> Outcome {
            let ($p, $n) = (buf.as_mut_ptr().cast::<c_void>(), buf.len());
            // SAFETY: pointer and length are those of a live, exclusively borrowed slice.
            outcome(unsafe { $call })
        }
    )* };
}

macro_rules! write_calls {
    ($($name:ident($fd:ident, $p:ident, $n:ident $(, $arg:ident: $ty:ty)*) = $call:expr;)*) => { $(
        pub fn $name($fd: Fd, buf: &[u8] $(, $arg: $ty)*) -> Outcome {
            let ($p, $n) = (buf.as_ptr().cast::<c_void>(), buf.len());
            // SAFETY: pointer and length are those of a live slice, which the call only reads.
            outcome(unsafe { $call })
        }
    )* };
}

read_calls! {
    read(fd, p, n) = libc::read(fd, p, n);
    recv(fd, p, n, flags: c_int) = libc::recv(fd, p, n, flags);
    recvfrom(fd, p, n, flags: c_int) = libc::recvfrom(fd, p, n, flags, null_mut(), null_mut());
    under_read(fd, p, n) = glibc::__read(fd, p, n);
    read_chk(fd, p, n) = glibc::__read_chk(fd, p, n, n);
    recv_chk(fd, p, n, flags: c_int) = glibc::__recv_chk(fd, p, n, n, flags);
    recvfrom_chk(fd, p, n, flags: c_int) =
        glibc::__recvfrom_chk(fd, p, n, n, flags, null_mut(), null_mut());
    syscall_read(fd, p, n) = libc::syscall(libc::SYS_read, fd, p, n);
    syscall_recvfrom(fd, p, n, flags: c_int) =
        libc::syscall(libc::SYS_recvfrom, fd, p, n, flags, 0usize, 0usize);
}

write_calls! {
    write(fd, p, n) = libc::write(fd, p, n);
    send(fd, p, n, flags: c_int) = libc::send(fd, p, n, flags);
    sendto(fd, p, n, flags: c_int) = libc::sendto(fd, p, n, flags, null(), 0);
    under_write(fd, p, n) = glibc::__write(fd, p, n);
    under_send(fd, p, n, flags: c_int) = glibc::__send(fd, p, n, flags);
    syscall_write(fd, p, n) = libc::syscall(libc::SYS_write, fd, p, n);
    syscall_sendto(fd, p, n, flags: c_int) =
        libc::syscall(libc::SYS_sendto, fd, p, n, flags, 0usize, 0usize);
}

pub fn readv(fd: Fd, buf: &mut [u8]) -> Outcome {
    let iov = pieces(buf);
    // SAFETY: the iovecs cover a live, exclusively borrowed slice.
    outcome(unsafe { libc::readv(fd, iov.as_ptr(), iov.len() as c_int) })
}

pub fn writev(fd: Fd, buf: &[u8]) -> Outcome {
    let iov = const_pieces(buf);
    // SAFETY: the iovecs cover a live slice, which the call only reads.
    outcome(unsafe { libc::writev(fd, iov.as_ptr(), iov.len() as c_int) })
}

/// Offset -1 means "the file's position", the only offset that a socket takes.
pub fn preadv2(fd: Fd, buf: &mut [u8], flags: c_int) -> Outcome {
    let iov = pieces(buf);
    // SAFETY: the iovecs cover a live, exclusively borrowed slice.
    outcome(unsafe { libc::preadv2(fd, iov.as_ptr(), iov.len() as c_int, -1, flags) })
}

pub fn preadv64v2(fd: Fd, buf: &mut [u8], flags: c_int) -> Outcome {
    let iov = pieces(buf);
    // SAFETY: the iovecs cover a live, exclusively borrowed slice.
    outcome(unsafe { glibc::preadv64v2(fd, iov.as_ptr(), iov.len() as c_int, -1, flags) })
}

pub fn pwritev2(fd: Fd, buf: &[u8], flags: c_int) -> Outcome {
    let iov = const_pieces(buf);
    // SAFETY: the iovecs cover a live slice, which the call only reads.
    outcome(unsafe { libc::pwritev2(fd, iov.as_ptr(), iov.len() as c_int, -1, flags) })
}

pub fn pwritev64v2(fd: Fd, buf: &[u8], flags: c_int) -> Outcome {
    let iov = const_pieces(buf);
    // SAFETY: the iovecs cover a live slice, which the call only reads.
    outcome(unsafe { glibc::pwritev64v2(fd, iov.as_ptr(), iov.len() as c_int, -1, flags) })
}

pub fn recvmsg(fd: Fd, buf: &mut [u8], flags: c_int) -> Outcome {
    let mut iov = pieces(buf);
    let mut msg = message(&mut iov);
    // SAFETY: the header points to iovecs over a live, exclusively borrowed slice.
    outcome(unsafe { libc::recvmsg(fd, &mut msg, flags) })
}

pub fn sendmsg(fd: Fd, buf: &[u8], flags: c_int) -> Outcome {
    let mut iov = const_pieces(buf);
    let msg = message(&mut iov);
    // SAFETY: the header points to iovecs over a live slice, which the call only reads.
    outcome(unsafe { libc::sendmsg(fd, &msg, flags) })
}

/// Receives two messages in one call; returns the number of bytes, like the other calls. The first message may be half full
/// although the second has bytes, so they are joined here.
pub fn recvmmsg(fd: Fd, buf: &mut [u8], flags: c_int) -> Outcome {
    let mut scratch = [vec![0u8; buf.len().div_ceil(2)], vec![0u8; buf.len() / 2]];
    let [first, second] = &mut scratch;
    let mut iov = [first, second].map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
    let (head, tail) = iov.split_at_mut(1);
    let mut msgs = [head, tail].map(|part| mmsghdr { msg_hdr: message(part), msg_len: 0 });
    // SAFETY: the headers point to iovecs over two live, exclusively borrowed buffers.
    let done = outcome(unsafe { libc::recvmmsg(fd, msgs.as_mut_ptr(), 2, flags, null_mut()) })?;
    let mut total = 0;
    for (part, msg) in scratch.iter().zip(&msgs[..done]) {
        let n = msg.msg_len as usize;
        buf[total..total + n].copy_from_slice(&part[..n]);
        total += n;
    }
    Ok(total)
}

/// Two messages in one call; the answer is the number of bytes.
pub fn sendmmsg(fd: Fd, buf: &[u8], flags: c_int) -> Outcome {
    let mut iov = const_pieces(buf);
    let (head, tail) = iov.split_at_mut(2);
    let mut msgs = [head, tail].map(|part| mmsghdr { msg_hdr: message(part), msg_len: 0 });
    // SAFETY: the headers point to iovecs over a live slice, which the call only reads.
    let done = outcome(unsafe { libc::sendmmsg(fd, msgs.as_mut_ptr(), 2, flags) })?;
    Ok(msgs[..done].iter().map(|m| m.msg_len as usize).sum())
}

/// `recv` that throws bytes away: with MSG_TRUNC, TCP writes nothing to the buffer.
pub fn recv_discard(fd: Fd, n: usize, flags: c_int) -> Outcome {
    // SAFETY: with MSG_TRUNC the kernel never writes to the buffer, so null is allowed.
    outcome(unsafe { libc::recv(fd, null_mut(), n, flags | libc::MSG_TRUNC) })
}

pub fn sendfile(out: Fd, file: Fd, offset: Option<&mut i64>, n: usize) -> Outcome {
    let offset = offset.map_or(null_mut(), |o| o as *mut i64);
    // SAFETY: the offset is null or an exclusively borrowed integer.
    outcome(unsafe { libc::sendfile(out, file, offset, n) })
}

pub fn sendfile64(out: Fd, file: Fd, offset: Option<&mut i64>, n: usize) -> Outcome {
    let offset = offset.map_or(null_mut(), |o| o as *mut i64);
    // SAFETY: the offset is null or an exclusively borrowed integer.
    outcome(unsafe { libc::sendfile64(out, file, offset, n) })
}

pub fn splice(from: Fd, to: Fd, n: usize, flags: c_uint) -> Outcome {
    // SAFETY: no pointers besides two null offsets.
    outcome(unsafe { libc::splice(from, null_mut(), to, null_mut(), n, flags) })
}

pub fn tee(from: Fd, to: Fd, n: usize, flags: c_uint) -> Outcome {
    // SAFETY: no pointers.
    outcome(unsafe { libc::tee(from, to, n, flags) })
}

/// The pages stay in use until the pipe's reader has them, so they must live and stay unchanged.
pub fn vmsplice(pipe: Fd, buf: &'static [u8]) -> Outcome {
    let iov = iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    // SAFETY: the pages belong to a static slice; the call only reads them.
    outcome(unsafe { libc::vmsplice(pipe, &iov, 1, 0) })
}

fn sized_pieces(base: *mut u8, sizes: &[usize]) -> Vec<iovec> {
    let mut at = 0;
    let mut next = |&n: &usize| {
        // SAFETY: callers give sizes that together do not exceed the buffer.
        let piece = iovec { iov_base: unsafe { base.add(at) }.cast(), iov_len: n };
        at += n;
        piece
    };
    sizes.iter().map(&mut next).collect()
}

/// `readv` into consecutive pieces of exactly these sizes.
pub fn readv_pieces(fd: Fd, buf: &mut [u8], sizes: &[usize]) -> Outcome {
    assert_eq!(sizes.iter().sum::<usize>(), buf.len());
    let iov = sized_pieces(buf.as_mut_ptr(), sizes);
    // SAFETY: the iovecs cover a live, exclusively borrowed slice.
    outcome(unsafe { libc::readv(fd, iov.as_ptr(), iov.len() as c_int) })
}

/// `writev` of consecutive pieces of exactly these sizes.
pub fn writev_pieces(fd: Fd, buf: &[u8], sizes: &[usize]) -> Outcome {
    assert_eq!(sizes.iter().sum::<usize>(), buf.len());
    let iov = sized_pieces(buf.as_ptr().cast_mut(), sizes);
    // SAFETY: the iovecs cover a live slice, which the call only reads.
    outcome(unsafe { libc::writev(fd, iov.as_ptr(), iov.len() as c_int) })
}

/// `recvfrom` that asks for the sender: the outcome, the address's length, the bytes.
pub fn recvfrom_named(fd: Fd, n: usize) -> (Outcome, usize, Vec<u8>) {
    let mut buf = vec![0; n];
    // SAFETY: all-zero is a valid address of no family.
    let mut addr: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&addr) as libc::socklen_t;
    // SAFETY: buffer, address and length are live, exclusively borrowed values.
    let got = outcome(unsafe { libc::recvfrom(fd, buf.as_mut_ptr().cast(), n, 0, (&raw mut addr).cast(), &mut len) });
    buf.truncate(got.unwrap_or(0));
    (got, len as usize, buf)
}

/// What `recvmsg` wrote into its header.
pub struct Filled {
    /// The bytes received.
    pub outcome: Outcome,
    /// `msg_namelen`: 0 if no address was written.
    pub name_len: usize,
    /// `msg_controllen`: 0 if no control data was written.
    pub control_len: usize,
    /// `msg_flags`; -1 if the call has left it untouched.
    pub flags: c_int,
    /// As many as `outcome` says.
    pub bytes: Vec<u8>,
}

/// What `recvmsg` brought beside bytes.
pub struct Ancillary {
    /// The bytes received.
    pub outcome: Outcome,
    /// `msg_flags`, such as MSG_CTRUNC.
    pub flags: c_int,
    /// The whole buffer; zeros follow what was received.
    pub bytes: Vec<u8>,
    /// Control messages in the kernel's form, as many bytes as were written.
    pub control: Vec<u8>,
}

/// `recvmsg` of at most `n` bytes with `room` for control data.
pub fn recvmsg_control(fd: Fd, n: usize, room: usize, flags: c_int) -> Ancillary {
    let mut bytes = vec![0; n];
    let mut control = [0u64; 16];
    let mut iov = pieces(&mut bytes);
    let mut msg = message(&mut iov);
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = room;
    // SAFETY: the header and all it points to live until the call returns.
    let outcome = outcome(unsafe { libc::recvmsg(fd, &mut msg, flags) });
    let control = control.iter().flat_map(|word| word.to_ne_bytes()).take(msg.msg_controllen).collect();
    Ancillary { outcome, flags: msg.msg_flags, bytes, control }
}

/// `recvmsg` with room for an address and control data.
pub fn recvmsg_named(fd: Fd, n: usize) -> Filled {
    let mut bytes = vec![0; n];
    let (mut name, mut control) = ([0u64; 16], [0u64; 16]);
    let mut iov = pieces(&mut bytes);
    let mut msg = message(&mut iov);
    msg.msg_name = name.as_mut_ptr().cast();
    msg.msg_namelen = size_of_val(&name) as libc::socklen_t;
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of_val(&control);
    msg.msg_flags = -1;
    // SAFETY: the header and all it points to live until the call returns.
    let outcome = outcome(unsafe { libc::recvmsg(fd, &mut msg, 0) });
    let (name_len, control_len) = (msg.msg_namelen as usize, msg.msg_controllen);
    bytes.truncate(outcome.unwrap_or(0));
    Filled { outcome, name_len, control_len, flags: msg.msg_flags, bytes }
}

/// `sendto` with a destination, which a connected TCP socket ignores.
pub fn sendto_addr(fd: Fd, buf: &[u8], flags: c_int, addr: &super::net::Addr) -> Outcome {
    // SAFETY: buffer and address are live; the call only reads them.
    outcome(unsafe { libc::sendto(fd, buf.as_ptr().cast(), buf.len(), flags, addr.as_ptr(), addr.size()) })
}

/// Takes a zero-copy notice from the error queue: the first and the last send it is about.
pub fn error_queue(fd: Fd) -> Result<(u32, u32), super::errno::Errno> {
    let mut control = [0u64; 32];
    let mut msg = message(&mut []);
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of_val(&control);
    // SAFETY: the header and its control buffer, aligned as it must be, live over the call; the
    // first control message is looked at only if the kernel wrote one.
    unsafe {
        outcome(libc::recvmsg(fd, &mut msg, libc::MSG_ERRQUEUE))?;
        let header = libc::CMSG_FIRSTHDR(&msg);
        assert!(!header.is_null(), "a notice without contents");
        let error = libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned();
        // SO_EE_ORIGIN_ZEROCOPY
        assert_eq!((error.ee_errno, error.ee_origin), (0, 5), "not a zero-copy notice");
        Ok((error.ee_info, error.ee_data))
    }
}
