//! Trust domains: processes that can harm each other anyway, and therefore share limits and a receiver thread.

/// The network namespace of a member's socket, as far as it tells domains apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NetNamespace {
    /// The namespace's cookie. The broker's user namespace owns the namespace, or the broker is in it.
    Known(u64),
    /// A namespace that users made. Users make as many as they like, so all of them count as one.
    UserMade,
}

/// Who can harm each other anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Domain {
    /// A user in a network namespace.
    User {
        /// The user's number.
        uid: u32,
        /// The network namespace.
        netns: NetNamespace,
    },
    /// A pod of Kubernetes, by its UID, if the operator trusts pods. A pod in a user namespace has as many users as it likes.
    Pod(u128),
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
