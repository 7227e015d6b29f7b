//! Trust domains: who may hurt whom anyway, and so shares limits and a thread.

/// The network namespace that a member's socket belongs to, as far as it tells domains apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NetNamespace {
    /// Its cookie. The user namespace of the broker owns it, or it is the broker's very own.
    Known(u64),
    /// Any user makes as many of these as they like: all of them count as one.
    UserMade,
}

/// A user in a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain {
    /// The user's number.
    pub uid: u32,
    /// The network namespace.
    pub netns: NetNamespace,
}

/// What one receiver thread works for: if it is kept waiting, only they are kept waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Connections to the operator's socket.
    Operator,
    /// Connections that are turned away, and whose domain has no thread.
    Nobody,
    /// Members of one domain.
    Domain(Domain),
    /// Memory that two domains share, smaller one first.
    Both(Domain, Domain),
}

impl Scope {
    /// Of memory that members of these domains share.
    pub fn of_pair(a: Domain, b: Domain) -> Scope {
        if a == b { Scope::Domain(a) } else { Scope::Both(a.min(b), a.max(b)) }
    }
}
