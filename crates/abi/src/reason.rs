//! Why a connection stayed on, or went back to, the kernel. Numbers are stable: they are what metrics and
//! scripts hold on to. A new reason gets a new number; an old one is never reused.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// A numbered reason. `name()` is what `status` and reports print.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[doc = $doc])* $variant = $code,)* }

        impl Reason {
            /// Every reason, by number.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name,)* }
            }

            /// One sentence for the operator.
            pub const fn meaning(self) -> &'static str {
                match self { $(Reason::$variant => concat!($($doc),*),)* }
            }

            /// The reason with this number, if there is one.
            pub const fn from_code(code: u8) -> Option<Reason> {
                match code { $($code => Some(Reason::$variant),)* _ => None }
            }
        }
    };
}

reasons! {
    /// Closed before it had carried enough to be worth an upgrade.
    Short = 1, "short";
    /// The other end never asked for an upgrade: another host, a program without the library, another broker, or too short.
    PeerAbsent = 2, "peer-absent";
    /// The broker could not be reached.
    NoBroker = 3, "no-broker";
    /// The two ends belong to users that may not share memory.
    UserPair = 4, "user-pair";
    /// The kernel's counters disagree with ours: somebody does I/O behind our back.
    CountMismatch = 5, "count-mismatch";
    /// A non-blocking socket that no wait of ours has ever seen (io_uring, a private poller).
    NeverWaited = 6, "never-waited";
    /// Made before the library could see it, or registered with an epoll set the library does not know.
    Foreign = 7, "foreign";
    /// Several file descriptors for one connection where only one can be followed.
    Dup = 8, "dup";
    /// Several processes hold the connection after fork().
    Shared = 9, "shared";
    /// The process replaced its program by exec().
    Exec = 10, "exec";
    /// The descriptor was passed to another process (SCM_RIGHTS).
    Passed = 11, "passed";
    /// stdio was put on the socket (fdopen).
    Stdio = 12, "stdio";
    /// Urgent data (MSG_OOB).
    Urgent = 13, "urgent";
    /// MSG_ZEROCOPY, kernel TLS or another protocol on top of TCP.
    KernelFeature = 14, "kernel-feature";
    /// splice() or another transfer inside the kernel.
    Splice = 15, "splice";
    /// A socket option that needs the kernel to see the bytes (SO_RCVLOWAT, SO_ATTACH_*, SO_PEEK_OFF).
    SocketOption = 16, "socket-option";
    /// No memory for a link.
    Memory = 17, "memory";
    /// No file descriptor left for a link or a doorbell.
    FdLimit = 18, "fd-limit";
    /// Broker and library, or the two libraries, speak different versions.
    Version = 19, "version";
    /// The operator asked for it (`sidestep detach`).
    Detached = 20, "detached";
    /// The reader did not read for a while: the kernel's larger buffers took over.
    Stalled = 21, "stalled";
    /// More places wait at once than there are doorbells.
    Places = 22, "places";
    /// The peer ended its side first; what is left goes by kernel.
    PeerClosing = 23, "peer-closing";
    /// The peer wrote nonsense into shared memory; the connection was ended.
    BrokenPeer = 24, "broken-peer";
    /// More than one pair of sockets fits; none is taken.
    Ambiguous = 25, "ambiguous";
    /// The connection was switched by the test aid.
    Flip = 26, "flip";
    /// O_ASYNC: the kernel has to send the signals.
    Async = 27, "async";
    /// The program has confined itself (seccomp): the library makes no calls of its own any more.
    Sandbox = 28, "sandbox";
    /// It could not be proved that both ends are alive: the kernel cannot be asked (no sock_diag), or not in that network
    /// namespace.
    Unproven = 29, "unproven";
    /// A network namespace that another user namespace owns: its addresses prove nothing.
    Namespace = 30, "namespace";
    /// Its messages are too far apart for a ring to pay.
    Rare = 31, "rare";
    /// Neither end could deliver bytes that were unread; the connection was reset.
    Undelivered = 32, "undelivered";
}

/// One more than the largest reason number there can be.
pub const REASONS: usize = 64;
