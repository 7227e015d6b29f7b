//! Whether a connection may be taken at all.

use crate::info::{ESTABLISHED, Info, MICROSECONDS};
use crate::kernel::{CallError, SIOCATMARK, SocketOption, named};
use crate::options;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, ipproto, recv, sockopt};
use rustix::time::Timespec;

/// Why a connection is left to the kernel. The connection is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// Not a TCP socket of IPv4 or IPv6. MPTCP is not TCP.
    #[error("the descriptor is not a TCP socket")]
    NotTcp,
    /// Not connected yet, or one of the ends has already shut its direction down.
    #[error("the connection is not in state ESTABLISHED, but in state {state} of net/tcp_states.h")]
    NotEstablished {
        /// The kernel's number of the state.
        state: u8,
    },
    /// The program has called shutdown(SHUT_RD), which the kernel would forget.
    #[error("the program reads nothing more (shutdown(2) with SHUT_RD)")]
    Shut,
    /// Somebody else (or an earlier take) has the socket in repair mode.
    #[error("the socket is in repair mode already (TCP_REPAIR)")]
    InRepair,
    /// A layer above TCP, such as kernel TLS, owns the byte stream.
    #[error("an upper layer protocol is attached to the socket (TCP_ULP)")]
    UpperLayer,
    /// Segments carry a signature that only the kernel can make (RFC 5925).
    #[error("the connection is authenticated (TCP-AO)")]
    Authentication,
    /// The timestamps' clock counts microseconds (a feature of the route).
    #[error("the timestamps' clock counts microseconds (tcp_usec_ts)")]
    MicrosecondClock,
    /// The peer has announced a smaller MSS than the kernel restores (88 bytes).
    #[error("the peer accepts segments of {mss} bytes only")]
    TinySegments {
        /// The peer's MSS option.
        mss: u32,
    },
    /// An urgent byte is unread, has been read while bytes before it have not, or is announced.
    #[error("urgent data are pending (MSG_OOB)")]
    Urgent,
    /// Urgent bytes cannot be told from others.
    #[error("the socket receives urgent data in line (SO_OOBINLINE)")]
    UrgentInline,
    /// IP options or IPv6 extension headers go with each packet.
    #[error("the socket's packets have IP options or extension headers")]
    IpOptions,
    /// The kernel drops packets by their TTL or hop limit.
    #[error("the socket drops packets by their TTL or hop limit (IP_MINTTL, IPV6_MINHOPCOUNT)")]
    MinimumTtl,
    /// A program drops or truncates segments.
    #[error("a filter is attached to the socket, or none may be (SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_LOCK_FILTER)")]
    Filter,
    /// The program waits for the kernel to say that it may reuse its buffers.
    #[error("the program may send without copies (SO_ZEROCOPY)")]
    ZeroCopy,
    /// The program wants to know when packets are sent or received.
    #[error("the program asks for timestamps of packets (SO_TIMESTAMPING)")]
    Timestamping,
    /// The program decides when packets leave.
    #[error("the program delays its packets (SO_TXTIME, TCP_TX_DELAY)")]
    Delayed,
    /// The program peeks from an offset that moves with each look.
    #[error("the program peeks at an offset (SO_PEEK_OFF)")]
    PeekOffset,
    /// connect(2) of a give-back would wait for data.
    #[error("connect(2) is deferred until data are sent (TCP_FASTOPEN_CONNECT)")]
    FastOpen,
    /// The program receives signals when the socket's state changes, so it would see a give-back.
    #[error("the program receives signals for the socket (O_ASYNC)")]
    Signals,
    /// The kernel did not answer.
    #[error("the socket cannot be examined: {0}")]
    Unknown(#[from] CallError),
}

/// Examines whether the connection may be taken. Changes nothing, needs no capability, and works in any network namespace.
///
/// A socket does not tell everything:
/// - whether its segments carry an MD5 signature (RFC 2385): none for sure if [`Profile::option_memory`] is 0; else the peer's
///   first segment shows it, by an option that a carrier does not know;
/// - whether bytes that the program sent with MSG_OOB are unacknowledged: a give-back makes them ordinary bytes;
/// - whether it is a member of a sockmap, which a give-back ends.
///
/// [`Profile::option_memory`]: crate::Profile::option_memory
pub fn examine(fd: impl AsFd) -> Result<(), NotTaken> {
    let fd = fd.as_fd();
    let family = family(fd)?;
    established(fd)?;
    no_layer_or_signature(fd)?;
    no_urgent_data(fd)?;
    no_ip_options(fd, family)?;
    no_special_wishes(fd)
}

fn family(fd: BorrowedFd) -> Result<AddressFamily, NotTaken> {
    let family = sockopt::socket_domain(fd).map_err(|_| NotTaken::NotTcp)?;
    // None for IPPROTO_MPTCP and other protocols that rustix does not name.
    let protocol = sockopt::socket_protocol(fd).ok().flatten();
    let inet = family == AddressFamily::INET || family == AddressFamily::INET6;
    if inet && protocol == Some(ipproto::TCP) { Ok(family) } else { Err(NotTaken::NotTcp) }
}

fn established(fd: BorrowedFd) -> Result<(), NotTaken> {
    let info = Info::read(fd)?;
    refuse(info.state() != ESTABLISHED, NotTaken::NotEstablished { state: info.state() })?;
    refuse(options::TCP_REPAIR.get(fd)? != 0, NotTaken::InRepair)?;
    refuse(is_shut(fd)?, NotTaken::Shut)?;
    refuse(info.options() & MICROSECONDS != 0, NotTaken::MicrosecondClock)
}

/// Whether the reading side of an established connection is shut.
fn is_shut(fd: BorrowedFd) -> Result<bool, CallError> {
    let mut look = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
    named("poll(2)", poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })))?;
    Ok(look[0].revents().contains(PollFlags::RDHUP))
}

fn no_layer_or_signature(fd: BorrowedFd) -> Result<(), NotTaken> {
    refuse(options::TCP_ULP.is_present(fd)?, NotTaken::UpperLayer)?;
    match options::TCP_AO_INFO.get(fd) {
        Ok(_) => Err(NotTaken::Authentication),
        // No key; or a kernel without TCP-AO.
        Err(error) if matches!(error.source, Errno::NOENT | Errno::NOPROTOOPT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn no_urgent_data(fd: BorrowedFd) -> Result<(), NotTaken> {
    is_zero(fd, options::SO_OOBINLINE, NotTaken::UrgentInline)?;
    refuse(SIOCATMARK.ask(fd)? != 0, NotTaken::Urgent)?;
    match recv(fd, &mut [0; 1], RecvFlags::OOB | RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        // The kernel's answer if there is none, and none has been announced.
        Err(Errno::INVAL) => Ok(()),
        Ok(_) | Err(Errno::AGAIN) => Err(NotTaken::Urgent),
        Err(source) => Err(CallError { call: "recv(MSG_OOB)", source }.into()),
    }
}

fn no_ip_options(fd: BorrowedFd, family: AddressFamily) -> Result<(), NotTaken> {
    // An IPv6 socket has those of IPv4 for v4-mapped connections.
    refuse(options::IP_OPTIONS.is_present(fd)?, NotTaken::IpOptions)?;
    is_zero(fd, options::IP_MINTTL, NotTaken::MinimumTtl)?;
    if family == AddressFamily::INET {
        return Ok(());
    }
    for headers in [options::IPV6_HOPOPTS, options::IPV6_DSTOPTS, options::IPV6_RTHDR] {
        refuse(headers.is_present(fd)?, NotTaken::IpOptions)?;
    }
    is_zero(fd, options::IPV6_MINHOPCOUNT, NotTaken::MinimumTtl)
}

fn no_special_wishes(fd: BorrowedFd) -> Result<(), NotTaken> {
    let filter = match options::SO_GET_FILTER.is_present(fd) {
        // An eBPF program, which cannot be read.
        Err(error) if error.source == Errno::ACCESS => true,
        found => found?,
    };
    refuse(filter, NotTaken::Filter)?;
    is_zero(fd, options::SO_LOCK_FILTER, NotTaken::Filter)?; // a parked socket has one
    is_zero(fd, options::SO_ZEROCOPY, NotTaken::ZeroCopy)?;
    is_zero(fd, options::SO_TIMESTAMPING, NotTaken::Timestamping)?;
    is_zero(fd, options::TCP_TX_DELAY, NotTaken::Delayed)?;
    refuse(sockopt_txtime(fd)?, NotTaken::Delayed)?;
    is_zero(fd, options::TCP_FASTOPEN_CONNECT, NotTaken::FastOpen)?;
    // Negative: none. Kernels before 6.9 have no such offset for TCP.
    let peeks = options::SO_PEEK_OFF.get_if_known(fd)?.is_some_and(|offset| offset >= 0);
    refuse(peeks, NotTaken::PeekOffset)?;
    refuse(
        named("fcntl(F_GETFL)", fcntl_getfl(fd))?.contains(OFlags::from_bits_retain(libc::O_ASYNC as _)),
        NotTaken::Signals,
    )
}

/// SO_TXTIME has flags only while it is on; the clock's number alone says nothing.
fn sockopt_txtime(fd: BorrowedFd) -> Result<bool, CallError> {
    Ok(options::SO_TXTIME.get_if_known(fd)?.is_some_and(|value| value != [0, 0]))
}

fn is_zero(fd: BorrowedFd, option: SocketOption<i32>, otherwise: NotTaken) -> Result<(), NotTaken> {
    refuse(option.get_if_known(fd)?.is_some_and(|value| value != 0), otherwise)
}

fn refuse(reason_exists: bool, reason: NotTaken) -> Result<(), NotTaken> {
    if reason_exists { Err(reason) } else { Ok(()) }
}
