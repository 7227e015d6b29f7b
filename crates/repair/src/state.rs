//! What a connection is while the kernel does not carry it. Plain values: they can be kept in shared memory.

use crate::saved::Saved;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// All that [`give_back`](crate::give_back) needs, beside the bytes of both queues.
///
/// [`take`](crate::take) fills it. Whoever carries the connection meanwhile changes the sequence numbers and the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The socket's own address. A v4-mapped address for an IPv4 connection of an IPv6 socket.
    pub local: SocketAddr,
    /// The peer's address, of the same family. A take reads it by getpeername(2), which BPF programs may answer with the address that
    /// was dialled: a caller that knows better corrects it.
    pub remote: SocketAddr,
    /// SND.UNA: the first byte that the peer has not acknowledged.
    pub snd_una: u32,
    /// SND.NXT: the first byte that has not been sent.
    pub snd_nxt: u32,
    /// RCV.NXT: the byte that is expected from the peer.
    pub rcv_nxt: u32,
    /// The windows of both directions.
    pub window: Window,
    /// The MSS option of the peer, which limits the segments that it is sent: bytes, timestamps included.
    pub mss: u32,
    /// The window scales; None if the handshake agreed on none.
    pub scales: Option<Scales>,
    /// Whether both ends permit selective acknowledgements.
    pub sack: bool,
    /// The clock of the timestamps option; None if the handshake did not agree on timestamps.
    pub timestamps: Option<TimestampClock>,
    /// The socket options that give-back restores.
    pub saved: Saved,
}

/// The kernel's `struct tcp_repair_window`: unscaled bytes and sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// SND.WL1: sequence number of the segment that last updated `snd_wnd`.
    pub snd_wl1: u32,
    /// SND.WND: bytes from `snd_una` on that the peer accepts.
    pub snd_wnd: u32,
    /// The largest `snd_wnd` so far; not less than `snd_wnd`.
    pub max_window: u32,
    /// Bytes from `rcv_wup` on that this end has promised to accept.
    pub rcv_wnd: u32,
    /// RCV.NXT when `rcv_wnd` was last announced; not after `rcv_nxt`.
    pub rcv_wup: u32,
}

/// Shifts of the window fields, 0 to 14.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scales {
    /// For windows that the peer announces.
    pub send: u8,
    /// For windows that this end announces.
    pub receive: u8,
}

/// What a connection was when it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What give-back needs.
    pub state: State,
    /// The bytes that the program has not read. They end at `rcv_nxt`, and the peer knows that they have arrived.
    pub unread: Vec<u8>,
    /// The bytes from `snd_una` on: first those that have been sent, up to `snd_nxt`, then those that have not.
    pub unacknowledged: Vec<u8>,
    /// What the kernel had learnt about the path. It is lost for the kernel, which starts anew after a give-back.
    pub path: Path,
    /// What a carrier of the connection may have to respect.
    pub profile: Profile,
}

/// Congestion control and round-trip times, from TCP_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Congestion window in segments of `mss` bytes.
    pub cwnd: u32,
    /// Slow-start threshold in segments; 0x7fffffff: none yet.
    pub ssthresh: u32,
    /// Bytes of data in a full segment, without options; limited by the path MTU and the peer.
    pub mss: u32,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Smoothed round-trip time in microseconds; 0: not measured.
    pub srtt_us: u32,
    /// Mean deviation of the round-trip time in microseconds.
    pub rttvar_us: u32,
    /// Retransmission timeout in microseconds.
    pub rto_us: u32,
    /// Whether the kernel was recovering from loss or reordering, or had retransmitted what is in flight.
    pub recovering: bool,
}

/// Options of the socket that the kernel applied to the connection's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Congestion control algorithm.
    pub congestion: String,
    /// Most bytes a second (SO_MAX_PACING_RATE); None: unlimited.
    pub max_pacing_rate: Option<u64>,
    /// SO_MARK; 0: none.
    pub mark: u32,
    /// Number of the interface that the socket is bound to; 0: none.
    pub device: u32,
    /// SO_PRIORITY.
    pub priority: u32,
    /// TTL or hop limit of its packets.
    pub hop_limit: u8,
    /// TOS or traffic class of its packets, without the bits of ECN.
    pub traffic_class: u8,
    /// Whether the ends use explicit congestion notification.
    pub ecn: bool,
    /// Bytes of memory that the kernel keeps for the socket's options: for MD5 signatures (RFC 2385), or for BPF programs.
    pub option_memory: u32,
}

/// The kernel's clock of the timestamps option: milliseconds of CLOCK_MONOTONIC and an offset for each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimestampClock {
    /// TSval = milliseconds of CLOCK_MONOTONIC + `offset`, wrapping. Never behind what the kernel has sent; at most 2 ahead.
    pub offset: u32,
}

impl State {
    /// Bytes of the send queue that have been sent.
    pub(crate) fn in_flight(&self) -> u32 {
        self.snd_nxt.wrapping_sub(self.snd_una)
    }
}
