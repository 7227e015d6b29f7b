//! Why a connection goes back to the kernel.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal;)*) => {
        /// Why the fast path does not go on with a connection. The caller gives the connection back to the kernel, and then the
        /// segment that is the cause, if there is one: nothing of it has changed the connection's state.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Back { $($(#[doc = $doc])* $variant,)* }

        impl Back {
            /// Every reason.
            pub const ALL: &'static [Back] = &[$(Back::$variant,)*];

            /// The name in metrics and reports.
            pub const fn name(self) -> &'static str {
                match self { $(Back::$variant => $name,)* }
            }

            /// One sentence for the operator.
            pub const fn meaning(self) -> &'static str {
                match self { $(Back::$variant => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

reasons! {
    /// The peer ends its direction (FIN).
    Fin = "fin";
    /// A reset lies in the window (RST).
    Reset = "reset";
    /// A SYN lies in the window.
    Syn = "syn";
    /// The peer sends urgent data (URG).
    Urgent = "urgent";
    /// A segment has a TCP option that is unknown, malformed, or not agreed.
    Option = "option";
    /// A segment has a reserved header bit set.
    Reserved = "reserved";
    /// The peer reports a gap in what it has received (SACK).
    Sack = "sack";
    /// A segment is missing before one that has arrived.
    Gap = "gap";
    /// The peer has sent three duplicate ACKs, so it misses a segment.
    DuplicateAcks = "duplicate-acks";
    /// The peer's window is zero.
    ZeroWindow = "zero-window";
    /// The peer's window has stayed too small to send into it, and it must be probed.
    SmallWindow = "small-window";
    /// The peer has not acknowledged data in time (retransmission timeout).
    Timeout = "timeout";
    /// A router or the peer reports congestion (CE, ECE, CWR).
    Congestion = "congestion";
    /// A segment holds data beyond the window that was promised.
    BeyondWindow = "beyond-window";
    /// A segment has no timestamp, although both ends agreed on timestamps.
    NoTimestamp = "no-timestamp";
    /// A segment's timestamp is older than one that has arrived (PAWS).
    OldTimestamp = "old-timestamp";
    /// The program's position in a ring is one that it cannot have.
    Ring = "ring";
}

impl Back {
    /// Whether the peer misses bytes of this end.
    pub const fn is_loss(self) -> bool {
        matches!(self, Back::Sack | Back::DuplicateAcks | Back::Timeout)
    }
}

impl std::fmt::Display for Back {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name(), self.meaning())
    }
}

impl std::error::Error for Back {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_reason_has_a_name_of_its_own_and_a_sentence() {
        let names: BTreeSet<_> = Back::ALL.iter().map(|back| back.name()).collect();
        assert_eq!(names.len(), Back::ALL.len());
        assert!(Back::ALL.iter().all(|back| back.meaning().ends_with('.') && !back.meaning().starts_with(' ')));
        assert_eq!(Back::Gap.to_string(), "gap: A segment is missing before one that has arrived.");
    }
}
