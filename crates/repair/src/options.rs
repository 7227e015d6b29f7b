//! The socket options that this crate reads and writes, by name.

use crate::kernel::SocketOption;
use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};

macro_rules! options {
    ($($name:ident: $value:ty = $level:expr, $number:expr;)*) => {
        $(pub(crate) const $name: SocketOption<$value> = SocketOption::new($level, $number, stringify!($name));)*
    };
}

// Numbers that libc lacks are those of linux/tcp.h and asm-generic/socket.h.
options! {
    TCP_REPAIR: i32 = IPPROTO_TCP, libc::TCP_REPAIR;
    TCP_REPAIR_QUEUE: i32 = IPPROTO_TCP, libc::TCP_REPAIR_QUEUE;
    TCP_QUEUE_SEQ: u32 = IPPROTO_TCP, libc::TCP_QUEUE_SEQ;
    TCP_REPAIR_WINDOW: [u32; 5] = IPPROTO_TCP, 29;
    TCP_TIMESTAMP: u32 = IPPROTO_TCP, libc::TCP_TIMESTAMP;
    TCP_MAXSEG: u32 = IPPROTO_TCP, libc::TCP_MAXSEG;
    TCP_INFO: [u32; 32] = IPPROTO_TCP, libc::TCP_INFO;
    TCP_QUICKACK: i32 = IPPROTO_TCP, libc::TCP_QUICKACK;

    TCP_KEEPIDLE: u32 = IPPROTO_TCP, libc::TCP_KEEPIDLE;
    TCP_KEEPINTVL: u32 = IPPROTO_TCP, libc::TCP_KEEPINTVL;
    TCP_KEEPCNT: u32 = IPPROTO_TCP, libc::TCP_KEEPCNT;
    SO_KEEPALIVE: i32 = SOL_SOCKET, libc::SO_KEEPALIVE;
    SO_REUSEADDR: i32 = SOL_SOCKET, libc::SO_REUSEADDR;

    SO_SNDBUF: u32 = SOL_SOCKET, libc::SO_SNDBUF;
    SO_RCVBUF: u32 = SOL_SOCKET, libc::SO_RCVBUF;
    SO_SNDBUFFORCE: u32 = SOL_SOCKET, libc::SO_SNDBUFFORCE;
    SO_RCVBUFFORCE: u32 = SOL_SOCKET, libc::SO_RCVBUFFORCE;
    SO_BUF_LOCK: u32 = SOL_SOCKET, 72;
    TCP_NOTSENT_LOWAT: u32 = IPPROTO_TCP, 25;
    TCP_WINDOW_CLAMP: u32 = IPPROTO_TCP, libc::TCP_WINDOW_CLAMP;
    TCP_RTO_MIN_US: u32 = IPPROTO_TCP, 45;
    TCP_DELACK_MAX_US: u32 = IPPROTO_TCP, 46;

    TCP_ULP: [u32; 4] = IPPROTO_TCP, 31;
    TCP_AO_INFO: [u64; 6] = IPPROTO_TCP, 40;
    TCP_FASTOPEN_CONNECT: i32 = IPPROTO_TCP, 30;
    TCP_TX_DELAY: i32 = IPPROTO_TCP, 37;
    SO_PEEK_OFF: i32 = SOL_SOCKET, 42;
    SO_ZEROCOPY: i32 = SOL_SOCKET, 60;
    SO_OOBINLINE: i32 = SOL_SOCKET, libc::SO_OOBINLINE;
    SO_TIMESTAMPING: i32 = SOL_SOCKET, 37;
    SO_TXTIME: [i32; 2] = SOL_SOCKET, 61;
    // Its length counts instructions, not bytes: it must be asked without room for any.
    SO_GET_FILTER: () = SOL_SOCKET, 26;
    SO_LOCK_FILTER: i32 = SOL_SOCKET, libc::SO_LOCK_FILTER;
    SO_DETACH_FILTER: i32 = SOL_SOCKET, libc::SO_DETACH_FILTER;
    IP_OPTIONS: [u32; 10] = IPPROTO_IP, libc::IP_OPTIONS;
    IP_MINTTL: i32 = IPPROTO_IP, libc::IP_MINTTL;
    IPV6_MINHOPCOUNT: i32 = IPPROTO_IPV6, 73;
    IPV6_HOPOPTS: [u32; 16] = IPPROTO_IPV6, libc::IPV6_HOPOPTS;
    IPV6_RTHDR: [u32; 16] = IPPROTO_IPV6, libc::IPV6_RTHDR;
    IPV6_DSTOPTS: [u32; 16] = IPPROTO_IPV6, libc::IPV6_DSTOPTS;

    TCP_CONGESTION: [u32; 4] = IPPROTO_TCP, libc::TCP_CONGESTION;
    SO_MAX_PACING_RATE: u64 = SOL_SOCKET, 47;
    SO_MARK: u32 = SOL_SOCKET, libc::SO_MARK;
    SO_BINDTOIFINDEX: u32 = SOL_SOCKET, 62;
    SO_NETNS_COOKIE: u64 = SOL_SOCKET, 71;
    SO_MEMINFO: [u32; 9] = SOL_SOCKET, 55;
    SO_PRIORITY: u32 = SOL_SOCKET, libc::SO_PRIORITY;
    IP_TTL: u32 = IPPROTO_IP, libc::IP_TTL;
    IP_TOS: u32 = IPPROTO_IP, libc::IP_TOS;
    IPV6_UNICAST_HOPS: u32 = IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS;
    IPV6_TCLASS: u32 = IPPROTO_IPV6, libc::IPV6_TCLASS;
}

/// Values of `TCP_REPAIR`.
pub(crate) const REPAIR_ON: i32 = 1;
/// Sends a window probe.
pub(crate) const REPAIR_OFF: i32 = 0;
/// Sends nothing.
pub(crate) const REPAIR_OFF_QUIETLY: i32 = -1;
