//! What a case is, and what the report of a preloaded run must show for it.

/// Whether bytes go by ring in a preloaded run of the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ring {
    /// As many bytes must go by ring as `by_ring.txt` says, else the run says nothing about Sidestep.
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
    /// Waiters spin in any case, not only when they have learnt to.
    pub spins: bool,
    /// Connections are offered by their pace, as they are when nobody says when; else at their first byte.
    pub by_pace: bool,
    /// A reason that the processes must give in an upgraded run: LIMITATIONS.md names this case as its proof.
    pub reason: Option<&'static str>,
}

pub const fn case(name: &'static str, run: fn()) -> Case {
    Case { name, run, ring: Ring::Must, bulk: false, spins: false, by_pace: false, reason: None }
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

    /// Something of it stays on, or returns to, the kernel for this reason, by its name.
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

    pub const fn bulk(mut self) -> Case {
        self.bulk = true;
        self
    }
}
