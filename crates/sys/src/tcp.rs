//! What the kernel knows of a TCP socket.

use crate::{Result, call};

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

/// The kernel's name for this socket, never reused.
pub fn cookie(fd: i32) -> Result<u64> {
    option::<u64>(fd, libc::SOL_SOCKET, libc::SO_COOKIE)
}

/// Microseconds of SO_RCVTIMEO or SO_SNDTIMEO; 0: none.
pub fn timeout_us(fd: i32, name: i32) -> u64 {
    let t = option::<[i64; 2]>(fd, libc::SOL_SOCKET, name).unwrap_or([0, 0]);
    t[0] as u64 * 1_000_000 + t[1] as u64
}

/// Words of struct tcp_info that matter here (uapi/linux/tcp.h), as far as the counters reach.
#[derive(Clone, Copy)]
#[repr(C)]
struct TcpInfo {
    state: u8,
    _bytes: [u8; 7],
    _words: [u32; 24],
    _pacing: [u64; 2],
    _bytes_acked: u64,
    bytes_received: u64,
    _segs: [u32; 2],
    notsent_bytes: u32,
    _min_rtt: u32,
    _data_segs: [u32; 2],
    _rates: [u64; 4],
    _delivered: [u32; 2],
    bytes_sent: u64,
    bytes_retrans: u64,
}

const _: () = {
    assert!(core::mem::offset_of!(TcpInfo, bytes_received) == 128);
    assert!(core::mem::offset_of!(TcpInfo, notsent_bytes) == 144);
    assert!(core::mem::offset_of!(TcpInfo, bytes_sent) == 200);
};

impl Default for TcpInfo {
    fn default() -> TcpInfo {
        // SAFETY: integers and arrays of them: all zero is a value.
        unsafe { core::mem::zeroed() }
    }
}

/// TCP_ESTABLISHED of net/tcp_states.h.
const ESTABLISHED: u8 = 1;

fn info(fd: i32) -> Result<TcpInfo> {
    option::<TcpInfo>(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
}

/// Bytes that have been written to the socket by anybody; None unless it is established both ways.
pub fn written(fd: i32) -> Option<u64> {
    let i = info(fd).ok().filter(|i| i.state == ESTABLISHED)?;
    Some(i.bytes_sent - i.bytes_retrans + u64::from(i.notsent_bytes))
}

/// What [`consumed`] finds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed {
    Bytes(u64),
    /// Bytes keep arriving between the two questions: another time.
    Moving,
    /// Not established both ways, or the kernel does not tell.
    Unknown,
}

/// Bytes that have been read from the socket by anybody.
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

/// Bytes received and not read (SIOCINQ).
pub fn queued(fd: i32) -> Result<u32> {
    let mut n = 0i32;
    // SAFETY: FIONREAD writes one int.
    unsafe { call(libc::SYS_ioctl, [fd as usize, libc::FIONREAD as usize, &raw mut n as usize, 0, 0, 0]) }?;
    Ok(n as u32)
}

/// Whether close() will linger (SO_LINGER).
pub fn lingers(fd: i32) -> bool {
    option::<[i32; 2]>(fd, libc::SOL_SOCKET, libc::SO_LINGER).is_ok_and(|l| l[0] != 0)
}

/// Makes the coming close() send a reset.
pub fn reset_on_close(fd: i32) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
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
    let args = [fd as usize, &raw mut header as usize, (flags | libc::MSG_DONTWAIT) as usize, 0, 0, 0];
    // SAFETY: by contract.
    unsafe { call(libc::SYS_recvmsg, args) }
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
