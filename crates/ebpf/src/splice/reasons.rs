//! The outcomes of a connection to an opted-in port, or of one direction of it.

/// Names of `enum reason` in crates/bpf/src/splice.h, in its order, and what each means.
pub const REASONS: [(&str, &str); 17] = [
    ("spliced", "both ends write into each other's queues, from the first byte on"),
    ("peer-elsewhere", "ordinary TCP: the server's end is not a socket of this node, or not in the cgroup"),
    ("too-early", "ordinary TCP: the client wrote its first byte before the server's socket existed"),
    ("paused", "ordinary TCP: splicing was paused when the connection began"),
    ("mptcp", "ordinary TCP: a socket belongs to an MPTCP connection"),
    ("ulp", "ordinary TCP: a socket has an upper layer protocol, such as the kernel's TLS"),
    ("zerocopy", "ordinary TCP: a socket has SO_ZEROCOPY, whose notifications splicing cannot send"),
    ("low-water", "ordinary TCP: a socket has SO_RCVLOWAT, which splicing does not support"),
    (
        "blocking",
        "ordinary TCP, for the connection or one direction: a socket is in blocking mode, and --blocking was not given",
    ),
    ("kernel-socket", "ordinary TCP: a kernel socket"),
    ("early-data", "ordinary TCP: bytes were sent before the connection was established (TCP Fast Open)"),
    ("full", "ordinary TCP: there is no room for more sockets"),
    ("no-storage", "ordinary TCP: the kernel had no memory for the socket's storage"),
    ("stalled", "one direction continued by TCP: its reader had more unread bytes than its receive buffer holds"),
    ("streams", "one direction continued by TCP: many messages without answers, which TCP merges"),
    (
        "bypassed",
        "one direction continued by TCP: a call that began before the connection was established wrote by TCP",
    ),
    (
        "missed",
        "writes failed with EACCES: somebody removed the peer's socket from the map, and its unread bytes are lost",
    ),
];

/// The meaning of a reason, in a sentence; empty for an unknown one.
pub fn meaning(reason: &str) -> &'static str {
    REASONS.iter().find(|(name, _)| *name == reason).map_or("", |(_, meaning)| meaning)
}
