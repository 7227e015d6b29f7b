//! Names of the ways to send and to receive that a plan draws from, on a socket that waits or does not.

pub struct Ways {
    pub by_ring: &'static [&'static str],
    /// A connection goes to the kernel with them.
    pub by_kernel: &'static [&'static str],
}

pub const SENDING: Ways = Ways {
    by_ring: &["write", "writev", "send", "sendto", "sendmsg", MESSAGES, "send_dontwait", "pwritev2", MORE, SENDFILE],
    by_kernel: &[PIPE],
};
pub const MESSAGES: &str = "sendmmsg";
pub const MORE: &str = "send, more";
pub const SENDFILE: &str = "sendfile, part";

pub const RECEIVING: Ways = Ways {
    by_ring: &[
        "read",
        "readv",
        "recv",
        "recvfrom",
        "recvmsg",
        "recv_dontwait",
        "recvmsg_dontwait",
        "peek_then_read",
        UNREAD,
    ],
    by_kernel: &[PIPE],
};
pub const UNREAD: &str = "recv of what FIONREAD tells";
/// Only on a socket that waits, without a limit of time.
pub const WHOLE: &str = "recv, MSG_WAITALL";

/// splice(2).
pub const PIPE: &str = "splice, part";
