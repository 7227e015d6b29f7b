//! Questions to the kernel about TCP sockets, and calls on them.

use crate::{Errno, Result, call, fd};

/// Reads a socket option of plain old data.
pub fn option<T: Copy + Default>(fd: i32, level: i32, name: i32) -> Result<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    let args = [fd as usize, level as usize, name as usize, &raw mut value as usize, &raw mut len as usize, 0];
    // SAFETY: the kernel writes at most `len` bytes into `value`; T is plain data for every use below.
    unsafe { call(libc::SYS_getsockopt, args) }?;
    Ok(value)
}

/// Whether this is a plain TCP socket (not MPTCP, not Unix).
pub fn is_tcp(fd: i32) -> bool {
    option::<i32>(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// Whether the kernel refuses these flags of preadv2(2) and pwritev2(2) on TCP sockets. Asks with a new socket, which has
/// nothing to read: the kernel reports that only after it has accepted the flags.
pub fn refuses_flags(flags: i32) -> bool {
    matches!(answer_to_flags(flags), Ok(Err(Errno(libc::EOPNOTSUPP | libc::EINVAL))))
}

fn answer_to_flags(flags: i32) -> Result<Result<usize>> {
    fd::check_limit()?;
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory involved.
    let socket = unsafe { call(libc::SYS_socket, [libc::AF_INET as usize, kind as usize, 0, 0, 0, 0]) }?;
    let mut byte = 0u8;
    let vector = [&raw mut byte as usize, 1];
    // SAFETY: one vector of one byte, and the position -1, in two words of which the first counts.
    let answer =
        unsafe { call(libc::SYS_preadv2, [socket, vector.as_ptr() as usize, 1, usize::MAX, 0, flags as usize]) };
    fd::close(socket as i32);
    Ok(answer)
}

/// Options that make the kernel report when bytes arrived: SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING, each also in its
/// variant with 64 bits of time (asm-generic/socket.h).
pub const TIMESTAMPS: [i32; 6] = [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, libc::SO_TIMESTAMPING, 63, 64, 65];

/// Whether one of [`TIMESTAMPS`] is set.
pub fn has_timestamps(fd: i32) -> bool {
    TIMESTAMPS.iter().any(|name| option::<i32>(fd, libc::SOL_SOCKET, *name).is_ok_and(|set| set != 0))
}

/// Whether the socket has a filter (SO_ATTACH_FILTER, SO_ATTACH_BPF).
pub fn has_filter(fd: i32) -> bool {
    const SO_GET_FILTER: usize = 26;
    let mut instructions: libc::socklen_t = 0;
    // Without room the kernel writes nothing but the number of instructions.
    let args = [fd as usize, libc::SOL_SOCKET as usize, SO_GET_FILTER, 0, &raw mut instructions as usize, 0];
    // SAFETY: `instructions` is alive.
    let asked = unsafe { call(libc::SYS_getsockopt, args) };
    instructions > 0 || asked == Err(Errno(libc::EACCES)) // those of SO_ATTACH_BPF are not told
}

/// Whether TCP_INQ is set.
pub fn tells_unread(fd: i32) -> bool {
    option::<i32>(fd, libc::IPPROTO_TCP, libc::TCP_INQ).is_ok_and(|set| set != 0)
}

/// The kernel's number of this socket, never reused.
pub fn cookie(fd: i32) -> Result<u64> {
    option::<u64>(fd, libc::SOL_SOCKET, libc::SO_COOKIE)
}

/// Microseconds of SO_RCVTIMEO or SO_SNDTIMEO; 0: none. At most 292 years, which is as much as a u64 of nanoseconds holds.
pub fn timeout_us(fd: i32, name: i32) -> u64 {
    let [sec, usec] = option::<[u64; 2]>(fd, libc::SOL_SOCKET, name).unwrap_or([0, 0]);
    sec.saturating_mul(1_000_000).saturating_add(usec).min(i64::MAX as u64 / 1000)
}

/// Words of struct tcp_info that are needed here (uapi/linux/tcp.h), up to the counters.
#[derive(Clone, Copy)]
#[repr(C)]
struct TcpInfo {
    state: u8,
    _bytes: [u8; 7],
    _words: [u32; 11],
    last_data_recv: u32,
    _more_words: [u32; 12],
    _pacing: [u64; 2],
    _bytes_acked: u64,
    bytes_received: u64,
    _segs: [u32; 2],
    notsent_bytes: u32,
    _min_rtt: u32,
    data_segs: [u32; 2],
    _rates: [u64; 4],
    _delivered: [u32; 2],
    bytes_sent: u64,
    bytes_retrans: u64,
}

const _: () = {
    assert!(core::mem::offset_of!(TcpInfo, bytes_received) == 128);
    assert!(core::mem::offset_of!(TcpInfo, notsent_bytes) == 144);
    assert!(core::mem::offset_of!(TcpInfo, data_segs) == 152);
    assert!(core::mem::offset_of!(TcpInfo, bytes_sent) == 200);
};

impl Default for TcpInfo {
    fn default() -> TcpInfo {
        // SAFETY: integers and arrays of them: all zero is a value.
        unsafe { core::mem::zeroed() }
    }
}

/// TCP_ESTABLISHED and TCP_CLOSE of net/tcp_states.h.
const ESTABLISHED: u8 = 1;
const CLOSE: u8 = 7;

/// Whether `fd` is a TCP socket that has no peer and does not listen.
pub fn is_unconnected(fd: i32) -> bool {
    is_tcp(fd) && info(fd).is_ok_and(|i| i.state == CLOSE)
}

fn info(fd: i32) -> Result<TcpInfo> {
    option::<TcpInfo>(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
}

/// Whether the peer's FIN has come (tcp_states.h: TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING).
pub fn has_ended(fd: i32) -> bool {
    info(fd).is_ok_and(|i| matches!(i.state, 6 | CLOSE | 8 | 9 | 11))
}

/// Milliseconds since data last arrived at the socket, to within a tick of the kernel's clock.
pub fn since_last_data_ms(fd: i32) -> Option<u64> {
    info(fd).ok().map(|i| u64::from(i.last_data_recv))
}

/// Number of bytes written to the socket by any process. None: it is not established in both directions.
pub fn written(fd: i32) -> Option<u64> {
    traffic(fd).filter(|now| now.is_established).map(|now| now.written)
}

/// What a socket has received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that have arrived in order, and bytes that were sent, again and again if need be.
    pub bytes: [u64; 2],
    /// Segments that brought bytes, and segments that took bytes. The numbers may wrap.
    pub segments: [u32; 2],
    /// Bytes that any process has written to the socket.
    pub written: u64,
    /// In both directions.
    pub is_established: bool,
}

/// What the socket has received and sent since it was connected, or came from TCP_REPAIR. None: the kernel does not answer.
pub fn traffic(fd: i32) -> Option<Traffic> {
    let i = info(fd).ok()?;
    let written = i.bytes_sent.wrapping_sub(i.bytes_retrans) + u64::from(i.notsent_bytes);
    let (bytes, segments) = ([i.bytes_received, i.bytes_sent], i.data_segs);
    Some(Traffic { bytes, segments, written, is_established: i.state == ESTABLISHED })
}

/// Result of [`consumed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// This many, since the beginning of the connection.
    Bytes(u64),
    /// Bytes arrived between the two questions; ask again later.
    Moving,
    /// The connection is not established in both directions, or the kernel does not answer.
    Unknown,
}

/// Number of bytes read from the socket by any process.
pub fn consumed(fd: i32) -> Consumed {
    let received = || info(fd).ok().filter(|i| i.state == ESTABLISHED).map(|i| i.bytes_received);
    for _ in 0..8 {
        let (Some(before), Ok(queued)) = (received(), queued(fd)) else { return Consumed::Unknown };
        match received() {
            Some(after) if after == before => return Consumed::Bytes(before - u64::from(queued)),
            Some(_) => {}
            None => return Consumed::Unknown,
        }
    }
    Consumed::Moving
}

/// The cookie of the socket's network namespace.
pub fn namespace(fd: i32) -> Option<u64> {
    const SO_NETNS_COOKIE: i32 = 71;
    option::<u64>(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE).ok()
}

/// Whether two TCP sockets in one network namespace are the two ends of one connection, judged by their addresses.
pub fn are_two_ends(a: i32, b: i32) -> bool {
    let ends = |fd| Some((address(libc::SYS_getsockname, fd)?, address(libc::SYS_getpeername, fd)?));
    let (Some((a_local, a_remote)), Some((b_local, b_remote))) = (ends(a), ends(b)) else { return false };
    is_tcp(b) && namespace(a).is_some() && namespace(a) == namespace(b) && a_local == b_remote && a_remote == b_local
}

/// Address (IPv4 mapped) and port from getsockname(2) or getpeername(2).
fn address(call_number: libc::c_long, fd: i32) -> Option<([u8; 16], [u8; 2])> {
    let mut raw = [0u8; 28]; // struct sockaddr_in6
    let mut len = raw.len() as libc::socklen_t;
    let args = [fd as usize, raw.as_mut_ptr() as usize, &raw mut len as usize, 0, 0, 0];
    // SAFETY: the kernel writes at most `len` bytes.
    unsafe { call(call_number, args) }.ok()?;
    let port = [raw[2], raw[3]];
    let mut ip = [0u8; 16];
    match i32::from(u16::from_ne_bytes([raw[0], raw[1]])) {
        libc::AF_INET => {
            ip[10..12].fill(0xff);
            ip[12..].copy_from_slice(&raw[4..8]);
        }
        libc::AF_INET6 => ip.copy_from_slice(&raw[8..24]),
        _ => return None,
    }
    Some((ip, port))
}

/// Number of bytes received and not read (SIOCINQ).
pub fn queued(fd: i32) -> Result<u32> {
    let mut n = 0i32;
    // SAFETY: FIONREAD writes one int.
    unsafe { call(libc::SYS_ioctl, [fd as usize, libc::FIONREAD as usize, &raw mut n as usize, 0, 0, 0]) }?;
    Ok(n as u32)
}

/// Whether a read would return only an error, and consume it.
pub fn fails_next(fd: i32) -> bool {
    crate::fd::poll_now(fd, 0) & libc::POLLERR != 0 && queued(fd) == Ok(0)
}

/// Whether the next byte follows the mark of urgent data (sockatmark(3)).
pub fn is_at_mark(fd: i32) -> bool {
    const SIOCATMARK: usize = 0x8905;
    let mut at = 0i32;
    // SAFETY: SIOCATMARK writes one int.
    unsafe { call(libc::SYS_ioctl, [fd as usize, SIOCATMARK, &raw mut at as usize, 0, 0, 0]) }.is_ok() && at != 0
}

/// Number of bytes written and not acknowledged by the peer's kernel (SIOCOUTQ).
pub fn unacknowledged(fd: i32) -> Result<u32> {
    let mut n = 0i32;
    // SAFETY: TIOCOUTQ writes one int.
    unsafe { call(libc::SYS_ioctl, [fd as usize, libc::TIOCOUTQ as usize, &raw mut n as usize, 0, 0, 0]) }?;
    Ok(n as u32)
}

/// SO_LINGER: seconds that close() may wait until the peer's kernel has everything; 0: close() resets the connection.
pub fn linger(fd: i32) -> Option<u32> {
    let [on, seconds] = option::<[i32; 2]>(fd, libc::SOL_SOCKET, libc::SO_LINGER).ok()?;
    (on != 0).then_some(seconds as u32)
}

/// Makes the next close() send a reset.
pub fn reset_on_close(fd: i32) {
    set_linger(fd, Some(0));
}

/// Sets SO_LINGER to so many seconds, or off.
pub fn set_linger(fd: i32, seconds: Option<i32>) {
    let linger = libc::linger { l_onoff: seconds.is_some().into(), l_linger: seconds.unwrap_or(0) };
    let args = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        libc::SO_LINGER as usize,
        &raw const linger as usize,
        size_of::<libc::linger>(),
        0,
    ];
    // SAFETY: `linger` is alive and of the stated size.
    let _ = unsafe { call(libc::SYS_setsockopt, args) };
}

/// ABORT of RFC 9293: the peer sees a reset, and so do all users of this socket.
pub fn abort(fd: i32) {
    let none = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    // SAFETY: `none` is alive and of the stated size.
    let _ = unsafe { call(libc::SYS_connect, [fd as usize, &raw const none as usize, size_of_val(&none), 0, 0, 0]) };
}

/// shutdown(2).
pub fn shutdown(fd: i32, how: i32) {
    // SAFETY: no memory involved.
    let _ = unsafe { call(libc::SYS_shutdown, [fd as usize, how as usize, 0, 0, 0, 0]) };
}

/// recv(2) without waiting.
///
/// # Safety
/// `iov` must describe writable memory.
pub unsafe fn receive(fd: i32, iov: &[libc::iovec], flags: i32) -> Result<usize> {
    let mut header = header(iov);
    // MSG_CMSG_COMPAT has no effect on recv(2); recvmsg(2) refuses it.
    let flags = flags & i32::MAX | libc::MSG_DONTWAIT;
    let args = [fd as usize, &raw mut header as usize, flags as usize, 0, 0, 0];
    // SAFETY: by contract.
    unsafe { call(libc::SYS_recvmsg, args) }
}

/// Removes up to `n` bytes from the socket's queue without looking at them, and without waiting (tcp(7), MSG_TRUNC).
pub fn discard(fd: i32, n: u64) -> Result<u64> {
    let nowhere = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: n as usize }];
    // SAFETY: with MSG_TRUNC the kernel writes nothing.
    unsafe { receive(fd, &nowhere, libc::MSG_TRUNC) }.map(|n| n as u64)
}

/// send(2) without waiting and without SIGPIPE.
///
/// # Safety
/// `iov` must describe readable memory.
pub unsafe fn send(fd: i32, iov: &[libc::iovec]) -> Result<usize> {
    let header = header(iov);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: by contract.
    unsafe { call(libc::SYS_sendmsg, [fd as usize, &raw const header as usize, flags as usize, 0, 0, 0]) }
}

fn header(iov: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: integers and null pointers: all zero is a value.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = iov.as_ptr().cast_mut();
    header.msg_iovlen = iov.len();
    header
}

/// Whether an address is at most the end of the addresses that a program can map, which depends on processor and kernel. The
/// kernel checks the buffer of a call before the descriptor.
#[cold]
pub fn is_user_address(end: usize) -> bool {
    let args = [usize::MAX, end - 1, 1, 0, 0, 0];
    // SAFETY: there is no such descriptor, so that nothing is received.
    let asked = unsafe { call(libc::SYS_recvfrom, args) };
    asked != Err(crate::Errno(libc::EFAULT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::descriptor_of;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    fn pair(host: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((host, 0)).expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        (client, listener.accept().expect("accept").0)
    }

    /// A peer names a process and a descriptor. Either number may stand for something else by now.
    #[test]
    fn only_the_other_end_is_the_other_end() {
        for host in ["127.0.0.1", "::1"] {
            let ((client, server), (other, _there)) = (pair(host), pair(host));
            let ours = client.as_raw_fd();
            assert!(are_two_ends(ours, server.as_raw_fd()) && are_two_ends(server.as_raw_fd(), ours));
            let udp = UdpSocket::bind((host, 0)).expect("bind");
            udp.connect(client.local_addr().expect("address")).expect("connect");
            let null = std::fs::File::open("/dev/null").expect("open");
            for (what, fd) in [
                ("itself", ours),
                ("another connection", other.as_raw_fd()),
                ("datagrams", udp.as_raw_fd()),
                ("no socket", null.as_raw_fd()),
                ("nothing", -1),
            ] {
                assert!(!are_two_ends(ours, fd), "{host}: {what}");
            }
            let copy = descriptor_of(std::process::id(), server.as_raw_fd()).expect("our own process");
            assert!(are_two_ends(ours, copy));
            fd::close(copy);
        }
        // The process with that number is gone.
        let mut child = std::process::Command::new("true").spawn().expect("spawn");
        child.wait().expect("wait");
        assert!(descriptor_of(child.id(), 0).is_err());
    }

    #[test]
    fn flags_that_do_not_exist_are_told_from_those_that_do() {
        assert!(refuses_flags(1 << 20) && refuses_flags(libc::RWF_APPEND | 1 << 20));
        assert!(!refuses_flags(0) && !refuses_flags(libc::RWF_NOWAIT) && !refuses_flags(libc::RWF_APPEND));
    }
}
