//! A case, and what the report of its preloaded run must show.

/// Whether bytes go by ring in a preloaded run of the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ring {
    /// At least as many bytes as `by_ring.txt` says must go by ring. Otherwise the run proves nothing about Sidestep.
    Must,
    /// They may or may not, for this reason.
    May(&'static str),
    /// They must not, for this reason.
    Never(&'static str),
    /// The case makes no connection, so that a process need not even write a report.
    NoConnection,
}

#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub run: fn(),
    pub ring: Ring,
    /// Moves enough data that a run with flips must have returned to the kernel at least once.
    pub bulk: bool,
    /// Waits always spin, not only if spinning has paid.
    pub spins: bool,
    /// Connections are offered by their pace, as by default. Otherwise they are offered at their first byte.
    pub by_pace: bool,
    /// A ring holds more than the kernel takes into one socket's buffer.
    pub large_ring: bool,
    /// A reason that the processes must report in an upgraded run: LIMITATIONS.md cites this case.
    pub reason: Option<&'static str>,
}

pub const fn case(name: &'static str, run: fn()) -> Case {
    Case { name, run, ring: Ring::Must, bulk: false, spins: false, by_pace: false, large_ring: false, reason: None }
}

impl Case {
    pub const fn may(mut self, reason: &'static str) -> Case {
        self.ring = Ring::May(reason);
        self
    }

    pub const fn never(mut self, reason: &'static str) -> Case {
        self.ring = Ring::Never(reason);
        self
    }

    pub const fn no_connection(mut self) -> Case {
        self.ring = Ring::NoConnection;
        self
    }

    /// Some connection of the case stays on, or returns to, the kernel for this reason, given by name.
    pub const fn reason(mut self, reason: &'static str) -> Case {
        self.reason = Some(reason);
        self
    }

    pub const fn spins(mut self) -> Case {
        self.spins = true;
        self
    }

    pub const fn by_pace(mut self) -> Case {
        self.by_pace = true;
        self
    }

    pub const fn large_ring(mut self) -> Case {
        self.large_ring = true;
        self
    }

    pub const fn bulk(mut self) -> Case {
        self.bulk = true;
        self
    }
}
