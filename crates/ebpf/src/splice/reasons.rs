//! The outcomes of a connection to an opted-in port, or of one direction of it.

/// Names of `enum reason` in crates/bpf/src/splice.h, in its order, and what each means.
pub const REASONS: [(&str, &str); 17] = [
    ("spliced", "both ends write into each other's queues, from the first byte on"),
    ("peer-elsewhere", "ordinary TCP: the server's end is no socket of this node, or not in the cgroup"),
    ("too-early", "ordinary TCP: the client's first byte came before the server's socket was there"),
    ("paused", "ordinary TCP: splicing was paused when the connection began"),
    ("mptcp", "ordinary TCP: a socket belongs to an MPTCP connection"),
    ("ulp", "ordinary TCP: a socket has an upper layer protocol, such as the kernel's TLS"),
    ("zerocopy", "ordinary TCP: a socket wants to hear of the end of MSG_ZEROCOPY writes, which splicing cannot tell"),
    ("low-water", "ordinary TCP: a socket has SO_RCVLOWAT, which splicing does not know"),
    ("blocking", "ordinary TCP, or one way of it: a program waits in its calls, and --blocking was not given"),
    ("kernel-socket", "ordinary TCP: a socket of the kernel's own"),
    ("early-data", "ordinary TCP: bytes were sent before there was a connection (TCP Fast Open)"),
    ("full", "ordinary TCP: there is no room for more sockets"),
    ("no-storage", "ordinary TCP: the kernel had no memory to remember the socket"),
    ("stalled", "one way went on by TCP: its reader left as much unread as its receive buffer holds"),
    ("streams", "one way went on by TCP: many messages without answers, which TCP carries in larger pieces"),
    ("bypassed", "one way went on by TCP: a call that had begun before the connection was there wrote by TCP"),
    ("missed", "writes failed with EACCES: somebody has taken the peer out of the map, and its unread bytes with it"),
];

/// The meaning of a reason, in a sentence; empty for an unknown one.
pub fn meaning(reason: &str) -> &'static str {
    REASONS.iter().find(|(name, _)| *name == reason).map_or("", |(_, meaning)| meaning)
}
