//! Trust domains: processes that can harm each other anyway, and therefore share limits and a receiver thread.

/// The network namespace of a member's socket, as far as it tells domains apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NetNamespace {
    /// The namespace's cookie. The broker's user namespace owns the namespace, or the broker is in it.
    Known(u64),
    /// A namespace that users made. Users make as many as they like, so all of them count as one.
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

/// The work of one receiver thread. If that thread is delayed, only these processes are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Connections to the operator's socket.
    Operator,
    /// Connections that are turned away, and whose domain has no receiver.
    Nobody,
    /// Members of one domain.
    Domain(Domain),
    /// Memory that two domains share; the smaller domain first.
    Both(Domain, Domain),
}

impl Scope {
    /// The scope of memory that members of these domains share.
    pub fn of_pair(a: Domain, b: Domain) -> Scope {
        if a == b { Scope::Domain(a) } else { Scope::Both(a.min(b), a.max(b)) }
    }
}
