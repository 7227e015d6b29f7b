//! recvmsg, sendmsg and their many-message forms.

use super::conn;
use super::rw::{MOST_VECTORS, address_is_good};
use crate::io::{past_us, recv, send as transmit};
use crate::record::{Conn, flag};
use crate::stream::iov::{self, Destination};
use crate::stream::rx;
use crate::stream::source::Buffers;
use crate::{arena, drain, errno, fdtable, host, next, passed, user};
use core::ffi::{c_int, c_uint, c_void};
use core::mem::offset_of;
use libc::{cmsghdr, iovec, mmsghdr, msghdr, ssize_t, timespec};
use sidestep_abi::Reason;
use sidestep_sys::{Errno, Result, tcp};

/// MSG_CMSG_COMPAT: the kernel sets it for 32-bit programs, and refuses it from others.
const COMPAT: c_int = i32::MIN;

/// Reads a header of the program, with the kernel's checks in the kernel's order. EFAULT, EINVAL or EMSGSIZE: the call's
/// result.
fn header(msg: *const msghdr) -> Result<msghdr> {
    let mut m = user::read(msg)?;
    m.msg_iovlen = host::length(m.msg_iovlen);
    m.msg_controllen = host::length(m.msg_controllen);
    if !m.msg_name.is_null() && m.msg_namelen > i32::MAX as u32 {
        return Err(Errno(libc::EINVAL));
    }
    Ok(m)
}

/// The vector of a header, if it has any buffers.
fn with_vector<T>(m: &msghdr, work: impl FnOnce(&[iovec]) -> T) -> Result<T> {
    if m.msg_iovlen > MOST_VECTORS {
        return Err(Errno(libc::EMSGSIZE));
    }
    if m.msg_iovlen == 0 {
        return Ok(work(&[]));
    }
    iov::with_vector(m.msg_iov, m.msg_iovlen, work)
}

pub unsafe fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::recvmsg(fd, msg, flags) };
    match conn(fd) {
        // SAFETY: the program's own header.
        Some(c) if flags & COMPAT == 0 => unsafe { receive(c, fd, msg, flags, native) },
        _ => native(),
    }
}

unsafe fn receive(c: u32, fd: c_int, msg: *mut msghdr, flags: c_int, native: impl FnOnce() -> ssize_t) -> ssize_t {
    let mut by_kernel = false;
    let native = || {
        by_kernel = true;
        native()
    };
    let received = header(msg).and_then(|m| {
        // SAFETY: the buffers of the program's own header, which it receives into.
        let got = with_vector(&m, |iov| recv::recv(c, fd, unsafe { Destination::new(iov) }, flags, native))?;
        Ok((got, m))
    });
    let done = received.and_then(|(got, m)| {
        if got >= 0 && !by_kernel {
            // SAFETY: the program's own header.
            unsafe { tell(msg, &m, flags, unread(arena::conn(c), fd)) }?;
        }
        Ok(got)
    });
    done.unwrap_or_else(|e| errno::give(Err(e)))
}

/// The value that TCP_INQ reports in recvmsg(2): how many bytes are left. After the peer's end there is always one more read.
fn unread(c: &Conn, fd: c_int) -> Option<c_int> {
    c.has(flag::TELLS_UNREAD).then(|| match rx::readable(c, fd) {
        0 => c_int::from(tcp::has_ended(fd)),
        n => n as c_int,
    })
}

/// Fills in the header as the kernel does for TCP: no address, and no ancillary data but that of TCP_INQ.
unsafe fn tell(msg: *mut msghdr, m: &msghdr, flags: c_int, unread: Option<c_int>) -> Result<()> {
    // SAFETY: the program's own place for ancillary data.
    let (used, cut) = unread.map_or((0, 0), |n| unsafe { tell_unread(m, n) });
    // SAFETY: fields of the program's own header.
    unsafe {
        if !m.msg_name.is_null() {
            user::write(msg.wrapping_byte_add(offset_of!(msghdr, msg_namelen)).cast::<u32>(), 0)?;
        }
        let said = flags & libc::MSG_CMSG_CLOEXEC | cut;
        user::write(msg.wrapping_byte_add(offset_of!(msghdr, msg_flags)).cast::<c_int>(), said)?;
        user::write(msg.wrapping_byte_add(offset_of!(msghdr, msg_controllen)).cast::<usize>(), used)
    }
}

/// Length of one control message with an int, header included (cmsg(3)), aligned for a following one.
const CONTROL_LEN: usize = size_of::<cmsghdr>() + size_of::<c_int>();
const CONTROL_SPACE: usize = CONTROL_LEN.next_multiple_of(size_of::<usize>());

/// Writes the number of unread bytes as a control message, cut to the room there is, as the kernel does. Returns the room
/// used, and MSG_CTRUNC if there was too little.
unsafe fn tell_unread(m: &msghdr, unread: c_int) -> (usize, c_int) {
    let room = m.msg_controllen;
    if m.msg_control.is_null() || room < size_of::<cmsghdr>() {
        return (0, libc::MSG_CTRUNC);
    }
    let (len, cut) = if room < CONTROL_LEN { (room, libc::MSG_CTRUNC) } else { (CONTROL_LEN, 0) };
    let head = [len as u64, libc::IPPROTO_TCP as u64 | (libc::TCP_CM_INQ as u64) << 32, unread as u64];
    let mut bytes = [0; size_of::<[u64; 3]>()];
    bytes.chunks_exact_mut(size_of::<u64>()).zip(head).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
    // SAFETY: by contract. What cannot be written the kernel leaves out, without an error.
    match unsafe { user::write_all(m.msg_control.cast::<u8>(), &bytes[..len]) } {
        Ok(()) => (room.min(CONTROL_SPACE), cut),
        Err(_) => (0, cut),
    }
}

pub unsafe fn recvmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
    if conn(fd).is_none() || n == 0 || flags & COMPAT != 0 || !timeout.is_null() {
        // SAFETY: the program's own call. A timeout is left to the kernel: programs that use one do not read streams.
        return unsafe { natively_many(fd, msgs, n, flags, timeout) };
    }
    // A pending socket error comes before all messages, even those that are there (net/socket.c).
    if flags & libc::MSG_ERRQUEUE == 0
        && let Ok(error @ 1..) = tcp::option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR)
    {
        return errno::give(Err(Errno(error))) as c_int;
    }
    let mut rest = flags & !libc::MSG_WAITFORONE;
    // SAFETY: the program's own entries.
    for_each(msgs, n, |entry| unsafe {
        let got = recvmsg(fd, entry, rest);
        if flags & libc::MSG_WAITFORONE != 0 {
            rest |= libc::MSG_DONTWAIT;
        }
        if got < 0 { Err(Errno(errno::get())) } else { Ok((got as usize, true)) }
    })
}

unsafe fn natively_many(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
    let c = conn(fd).filter(|_| !timeout.is_null() && super::time::nanoseconds(timeout).is_ok()).map(arena::conn);
    if let Some(c) = c {
        // The call may not wait, so unread bytes of the ring must be in the kernel before.
        errno::keep(|| drain::to_kernel(c, fd, Reason::SocketOption));
    }
    // SAFETY: the program's own call.
    let got = unsafe { next::recvmmsg(fd, msgs, n, flags, timeout) };
    if let Some(c) = c.filter(|_| flags & (libc::MSG_PEEK | libc::MSG_OOB | libc::MSG_ERRQUEUE) == 0) {
        past_us::received(c, bytes_in(msgs, got));
    }
    got
}

/// Number of bytes in the first `n` messages, as the kernel has stored it behind their headers.
fn bytes_in(msgs: *mut mmsghdr, n: c_int) -> ssize_t {
    let lengths = (0..n.max(0) as usize).map_while(|i| user::read(length_of(msgs.wrapping_add(i)).cast_const()).ok());
    lengths.map(|length| length as ssize_t).sum()
}

/// Where an entry has the number of bytes that were moved.
fn length_of(entry: *mut mmsghdr) -> *mut u32 {
    entry.wrapping_byte_add(offset_of!(mmsghdr, msg_len)).cast::<u32>()
}

/// Calls `each` with the header of each message and stores the returned number of bytes behind that header. `each` also
/// returns whether to go on. Returns the number of messages; an error only if the first message fails.
fn for_each(msgs: *mut mmsghdr, n: c_uint, mut each: impl FnMut(*mut msghdr) -> Result<(usize, bool)>) -> c_int {
    let before = errno::get();
    for i in 0..n {
        let entry = msgs.wrapping_add(i as usize);
        let told = each(entry.cast()).and_then(|(moved, goes_on)| {
            // SAFETY: a field of an entry that the program has named.
            unsafe { user::write(length_of(entry), moved as u32) }.map(|()| goes_on)
        });
        match told {
            Ok(true) => {}
            Ok(false) => return i as c_int + 1,
            Err(e) if i == 0 => return errno::give(Err(e)) as c_int,
            Err(_) => {
                errno::set(before); // errno stays as it was: the call succeeds
                return i as c_int;
            }
        }
    }
    n as c_int
}

pub unsafe fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::sendmsg(fd, msg, flags) };
    let Some(c) = conn(fd) else {
        passed::drain_to_kernel(msg);
        return native();
    };
    if flags & COMPAT != 0 {
        return native();
    }
    let sent = header(msg).and_then(|m| {
        if !m.msg_name.is_null() && m.msg_namelen > 0 {
            check_name(&m)?;
        }
        with_vector(&m, |iov| match m.msg_controllen {
            0 => transmit::send(c, fd, &mut Buffers(iov), flags, native),
            _ => send_with_control((c, fd), &m, iov::total(iov), flags, native),
        })
    });
    sent.unwrap_or_else(|e| errno::give(Err(e)))
}

/// On a connected stream the kernel reads the address, cut if it is too long, and ignores it.
fn check_name(m: &msghdr) -> Result<()> {
    let len = m.msg_namelen.min(size_of::<libc::sockaddr_storage>() as u32);
    if address_is_good(m.msg_name.cast(), len) { Ok(()) } else { Err(Errno(libc::EFAULT)) }
}

/// Ancillary data tells the kernel how to send, so the connection goes to the kernel for good. The kernel refuses data that
/// it cannot read.
#[cold]
fn send_with_control(
    (c, fd): (u32, c_int),
    m: &msghdr,
    all: usize,
    flags: c_int,
    native: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if m.msg_controllen > i32::MAX as usize || !is_readable(m.msg_control, m.msg_controllen) {
        return native();
    }
    transmit::by_kernel(arena::conn(c), fd, Reason::KernelFeature, flags, native, |sent| sent < all)
}

fn is_readable(from: *const c_void, len: usize) -> bool {
    let mut room = [0u8; 256];
    (0..len).step_by(room.len()).all(|at| {
        let part = &mut room[..(len - at).min(256)];
        user::read_all(part, from.cast::<u8>().wrapping_add(at)).is_ok()
    })
}

pub unsafe fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int {
    let most = n.min(MOST_VECTORS as c_uint); // the kernel cuts the number likewise
    if conn(fd).is_none() {
        if fdtable::follows_any() {
            (0..most as usize).for_each(|i| passed::drain_to_kernel(msgs.wrapping_add(i).cast()));
        }
        // SAFETY: the program's own call.
        return unsafe { next::sendmmsg(fd, msgs, n, flags) };
    }
    // SAFETY: the program's own entries.
    for_each(msgs, most, |entry| unsafe {
        let sent = sendmsg(fd, entry, flags);
        if sent < 0 {
            return Err(Errno(errno::get()));
        }
        // After a partial send no further message may follow: it would overtake the rest of this one.
        let whole = header(entry).is_ok_and(|m| with_vector(&m, iov::total) == Ok(sent as usize));
        Ok((sent as usize, whole))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdtable::Kind;
    use crate::stream::stretch::tests::blocking;
    use core::sync::atomic::Ordering::Relaxed;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_the_kernel_receives_for_recvmmsg_is_counted_once() {
        let (mine, mut theirs) = blocking();
        theirs.write_all(&[7; 30]).expect("30 bytes");
        let index = arena::alloc().expect("a record");
        let (c, fd) = (arena::conn(index), mine.as_raw_fd());
        c.reset(0, arena::bit());
        assert!(fdtable::set(fd, Kind::Conn(index)));
        let mut rooms = [[0_u8; 9]; 2];
        let mut vectors = rooms.each_mut().map(|room| iov::one(room.as_mut_ptr().cast(), room.len()));
        // SAFETY: integers and null pointers: all zero is a value.
        let mut msgs: [mmsghdr; 2] = unsafe { core::mem::zeroed() };
        for (entry, vector) in msgs.iter_mut().zip(&mut vectors) {
            entry.msg_hdr.msg_iov = vector.as_mut_ptr();
            entry.msg_hdr.msg_iovlen = 1;
        }
        let mut receive = |flags| {
            let mut limit = timespec { tv_sec: 5, tv_nsec: 0 };
            // SAFETY: entries, buffers and time are alive.
            let got = unsafe { recvmmsg(fd, msgs.as_mut_ptr(), 2, flags, &raw mut limit) };
            (got, c.early_rx.load(Relaxed))
        };
        let (peeked, taken) = (receive(libc::MSG_PEEK), receive(0));
        fdtable::set(fd, Kind::Other);
        assert_eq!((peeked, taken), ((2, 0), (2, 18)));
        arena::let_go(index);
    }
}
