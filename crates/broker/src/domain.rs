//! Trust domains: processes that can harm each other anyway, and therefore share limits and a receiver thread.

use sidestep_abi::msg::Msg;

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

/// A domain as the stack hears of it, which only tells domains apart: no two have the same key. The default is no domain's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    kind: u32,
    words: [u64; 2],
}

impl From<Domain> for Key {
    fn from(domain: Domain) -> Key {
        let (kind, words) = match domain {
            Domain::User { uid, netns: NetNamespace::Known(cookie) } => (1, [uid.into(), cookie]),
            Domain::User { uid, netns: NetNamespace::UserMade } => (2, [uid.into(), 0]),
            Domain::Pod(pod) => (3, [(pod >> 64) as u64, pod as u64]),
        };
        Key { kind, words }
    }
}

impl Key {
    /// The network namespace, if the domain is a user in one.
    pub fn netns(&self) -> Option<NetNamespace> {
        match self.kind {
            1 => Some(NetNamespace::Known(self.words[1])),
            2 => Some(NetNamespace::UserMade),
            _ => None,
        }
    }

    /// The key in a message.
    pub fn of(msg: &Msg) -> Key {
        Key { kind: msg.place, words: [msg.offer, msg.arg2] }
    }

    /// The message with this key.
    pub fn put_into(self, msg: Msg) -> Msg {
        let [offer, arg2] = self.words;
        Msg { place: self.kind, offer, arg2, ..msg }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_abi::msg::Kind;
    use std::collections::HashSet;

    #[test]
    fn a_message_tells_all_domains_apart() {
        let user = |uid, netns| Domain::User { uid, netns };
        let (known, made) = (NetNamespace::Known, NetNamespace::UserMade);
        let pods = [0, 1, 1 << 64, 1 << 96, u128::MAX].map(Domain::Pod);
        let users = [user(0, known(0)), user(1, known(0)), user(0, known(1)), user(0, made), user(1, made)];
        let all: Vec<Key> = pods.into_iter().chain(users).map(Key::from).collect();
        for key in &all {
            let msg = key.put_into(Msg { arg: 7, link: 1, slot: 2, side: 1, ..Msg::new(Kind::Foreign) });
            assert_eq!((Key::of(&msg), msg.arg, msg.link, msg.slot, msg.side), (*key, 7, 1, 2, 1));
        }
        let different: HashSet<Key> = all.iter().copied().chain([Key::default()]).collect();
        assert_eq!(different.len(), all.len() + 1);
    }

    #[test]
    fn a_key_tells_the_network_namespace_of_a_user() {
        for netns in [NetNamespace::Known(0), NetNamespace::Known(7), NetNamespace::UserMade] {
            assert_eq!(Key::from(Domain::User { uid: 3, netns }).netns(), Some(netns));
        }
        assert_eq!((Key::from(Domain::Pod(1)).netns(), Key::default().netns()), (None, None));
    }
}
