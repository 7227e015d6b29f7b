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
    /// The other end never asked for an upgrade: another host, no library in its program, another broker, or closed too soon.
    PeerAbsent = 2, "peer-absent";
    /// The broker could not be reached.
    NoBroker = 3, "no-broker";
    /// The two ends belong to users that may not share memory.
    UserPair = 4, "user-pair";
    /// The kernel's counters disagree with the library's: there was I/O that the library did not see.
    CountMismatch = 5, "count-mismatch";
    /// The library has seen no wait for the socket, or for the epoll set that holds it (io_uring, a private poller).
    NeverWaited = 6, "never-waited";
    /// The socket was made before the library could see it, or is in an epoll set that the library does not know.
    Foreign = 7, "foreign";
    /// The connection has several file descriptors, of which only one can be followed.
    Dup = 8, "dup";
    /// Several processes hold the connection after fork().
    Shared = 9, "shared";
    /// The process replaced its program by exec().
    Exec = 10, "exec";
    /// The descriptor was passed to another process (SCM_RIGHTS).
    Passed = 11, "passed";
    /// stdio was put on the socket (fdopen).
    Stdio = 12, "stdio";
    /// Urgent data (MSG_OOB) was sent.
    Urgent = 13, "urgent";
    /// MSG_ZEROCOPY, kernel TLS or another protocol on top of TCP.
    KernelFeature = 14, "kernel-feature";
    /// splice(), or another transfer inside the kernel.
    Splice = 15, "splice";
    /// A socket option that needs the kernel to see the bytes (SO_RCVLOWAT, SO_ATTACH_*, SO_PEEK_OFF).
    SocketOption = 16, "socket-option";
    /// No memory, no slot or no address space for a link.
    Memory = 17, "memory";
    /// No file descriptor is left for a link or a doorbell.
    FdLimit = 18, "fd-limit";
    /// Broker and library, or the two libraries, speak different versions.
    Version = 19, "version";
    /// The operator asked for it (`sidestep detach`).
    Detached = 20, "detached";
    /// The ring was full and its reader took nothing for a while: the kernel's buffers took over.
    Stalled = 21, "stalled";
    /// More epoll sets and blocked threads wait at once than a process has doorbells.
    Places = 22, "places";
    /// The peer ended its side first, or left the ring for a reason of its own. The rest goes by kernel.
    PeerClosing = 23, "peer-closing";
    /// The peer wrote into shared memory what no correct peer writes. The connection was ended.
    BrokenPeer = 24, "broken-peer";
    /// More than one pair of sockets fits, so none is taken.
    Ambiguous = 25, "ambiguous";
    /// The connection was switched by the test aid (SIDESTEP_FLIP).
    Flip = 26, "flip";
    /// O_ASYNC: the kernel has to send the signals.
    Async = 27, "async";
    /// The program has confined itself (seccomp): the library makes no more system calls of its own.
    Sandbox = 28, "sandbox";
    /// The broker could not find out whether both ends live: no tcp_diag in the kernel, or no access to the network namespace.
    Unproven = 29, "unproven";
    /// The end is in a network namespace that another user namespace owns: its addresses prove nothing.
    Namespace = 30, "namespace";
    /// The connection's messages are too far apart for a ring to pay off.
    Rare = 31, "rare";
    /// Neither end could deliver bytes that were unread in a ring. The connection was reset.
    Undelivered = 32, "undelivered";
    /// Stack: packets of the connection leave by a device that the stack was not given, or by a tunnel; or their way is not known.
    OtherDevice = 33, "other-device";
    /// Stack: the socket is in a state, or has an option, that only the kernel can serve.
    KernelOnly = 34, "kernel-only";
    /// Stack: a segment arrived that only the kernel can answer: an end, a reset, urgent data, an unknown option, a mark of congestion.
    Irregular = 35, "irregular";
    /// Stack: a segment was lost or came out of order, which the kernel mends.
    Loss = 36, "loss";
    /// Stack: the peer's window is zero or too small, or the kernel has promised more than a ring holds.
    Window = 37, "window";
    /// Stack: the program made a call that needs the kernel's socket.
    SocketNeeded = 38, "socket-needed";
    /// Stack: the program did not enter the rings in time, or the kernel was too busy.
    NotEntered = 39, "not-entered";
    /// The stack has ended.
    StackEnded = 40, "stack-ended";
    /// Stack: the messages are longer than 8 KiB on the average: the kernel, with its offloads, carries them better.
    Bulk = 41, "bulk";
    /// Stack: the operator has left the connection's peer or its ports out.
    NotChosen = 42, "not-chosen";
    /// Stack: nothing has come or gone for a minute, or for half of the program's keepalive time: the kernel watches over it.
    Idle = 43, "idle";
    /// Stack: the connection's packets do not come by the stack's device with the socket's addresses: NAT, IPsec, or another way back.
    Unseen = 44, "unseen";
}

/// One more than the largest reason number there can be.
pub const REASONS: usize = 64;
