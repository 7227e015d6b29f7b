//! Network namespaces: in which of them a socket's addresses are proof, and how sockets in them are looked for.
//!
//! The owner of a network namespace can make any address in it. So an address is proof only in a network namespace that the
//! broker's own user namespace owns, and in the one that the broker is in. Where a pod has a user namespace, that one owns its network
//! namespace: addresses there are proof between processes of that pod, which trust each other.

use crate::diag::{Diag, Wanted};
use crate::domain::NetNamespace;
use crate::proof::SocketFacts;
use crate::quota::{Account, Permit};
use crate::raw::{netns, sock};
use crate::rights;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::CapabilitySet;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Most namespaces that are kept open for questions although no offer waits in them.
const UNUSED: usize = 64;
/// Most namespaces whose owner is remembered. Cookies do not repeat before the next boot.
const REMEMBERED: usize = 65_536;

/// Why an address in a namespace is no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNamespace {
    /// Another user namespace owns it.
    OfAnotherUser,
    /// It cannot be entered, or the kernel cannot be asked there.
    Closed,
    /// The domain that asks has no descriptor left for it.
    Full,
}

/// A namespace in which sockets can be looked for.
#[derive(Debug)]
pub struct Namespace {
    diag: Mutex<Diag>,
    /// Addresses in it are proof for everybody.
    pub is_ours: bool,
    /// Quota for the descriptor, in the domain that had the namespace opened. None: the broker is in the namespace anyway.
    _permit: Option<Permit>,
}

impl Namespace {
    fn new(diag: Diag, is_ours: bool, permit: Option<Permit>) -> Arc<Namespace> {
        Arc::new(Namespace { diag: Mutex::new(diag), is_ours, _permit: permit })
    }

    /// Whether this very socket is still connected with the same addresses.
    pub fn has(&self, facts: &SocketFacts) -> Result<bool, Errno> {
        let SocketFacts { cookie, local, remote, space, .. } = *facts;
        let diag = self.diag.lock().unwrap_or_else(PoisonError::into_inner);
        diag.has(&Wanted { cookie, local, remote, device: space.device })
    }
}

/// The user namespace that owns a network namespace: device and inode of its file.
type Owner = (u64, u64);

/// What the broker knows about network namespaces.
#[derive(Debug)]
pub struct Namespaces {
    own: u64,
    /// The broker's user namespace. None: without /proc it is unknown, and only the broker's own network namespace counts.
    user: Option<Owner>,
    /// The broker's own network namespace. None: the kernel cannot be asked about TCP sockets.
    here: Option<Arc<Namespace>>,
    others: Mutex<HashMap<u64, Arc<Namespace>>>,
    /// Cookies of namespaces that the broker's user namespace owns.
    owned: Mutex<HashSet<u64>>,
}

impl Namespaces {
    /// As seen by this process.
    pub fn of_this_process() -> Namespaces {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let own = socket.ok().and_then(|socket| sock::netns_cookie(socket.as_fd()).ok());
        let user = std::fs::File::open("/proc/self/ns/user").ok().and_then(|file| identity_of(file.as_fd()).ok());
        let here = Diag::open().ok().map(|diag| Namespace::new(diag, true, None));
        Namespaces { own: own.unwrap_or(0), user, here, others: Mutex::default(), owned: Mutex::default() }
    }

    /// Whether this process is in the namespace of this cookie.
    pub fn is_own(&self, cookie: u64) -> bool {
        cookie == self.own
    }

    /// Whether this process is in the namespace.
    pub fn is_ours(&self, netns: NetNamespace) -> bool {
        netns == NetNamespace::Known(self.own)
    }

    /// The namespace of a member's socket, as far as it tells domains apart.
    pub fn space_of(&self, socket: BorrowedFd<'_>) -> NetNamespace {
        let Ok(cookie) = sock::netns_cookie(socket) else {
            return NetNamespace::UserMade;
        };
        let is_owned = || matches!(self.open(cookie, socket), Ok((_, true)));
        if cookie == self.own || self.remembers(cookie) || is_owned() {
            NetNamespace::Known(cookie)
        } else {
            NetNamespace::UserMade
        }
    }

    /// The namespace in which the sockets of this socket's namespace can be looked for. `for_pod`: it may be one that a user namespace
    /// below the broker's owns. A namespace that is not open yet counts in the `account`.
    fn of_socket(
        &self,
        cookie: u64,
        socket: &OwnedFd,
        for_pod: bool,
        account: &Arc<Account>,
    ) -> Result<Arc<Namespace>, NoNamespace> {
        if cookie == self.own {
            return self.here.clone().ok_or(NoNamespace::Closed);
        }
        let permitted = |is_ours| if is_ours || for_pod { Ok(()) } else { Err(NoNamespace::OfAnotherUser) };
        if let Some(known) = lock(&self.others).get(&cookie) {
            return permitted(known.is_ours).map(|()| known.clone());
        }
        let (namespace, is_ours) = self.open(cookie, socket.as_fd())?;
        permitted(is_ours)?;
        let permit = self.permit(account).ok_or(NoNamespace::Full)?;
        let opened = Namespace::new(diag_in(namespace).ok_or(NoNamespace::Closed)?, is_ours, Some(permit));
        let mut others = lock(&self.others);
        if others.len() >= UNUSED {
            close_unused(&mut others);
        }
        Ok(others.entry(cookie).or_insert(opened).clone())
    }

    /// Closes the namespaces in which no offer waits. While one is open here, the kernel keeps it and its devices, although its last
    /// process has ended.
    pub fn forget_unused(&self) {
        close_unused(&mut lock(&self.others));
    }

    /// Room for one more namespace. Those that are open only in case that somebody asks again may take the last room of the domain.
    fn permit(&self, account: &Arc<Account>) -> Option<Permit> {
        account.claim(1).or_else(|| {
            self.forget_unused();
            account.claim(1)
        })
    }

    fn remembers(&self, cookie: u64) -> bool {
        lock(&self.owned).contains(&cookie)
    }

    /// The namespace of a socket, and whether the broker's own user namespace owns it. Otherwise one below owns it.
    fn open(&self, cookie: u64, socket: BorrowedFd<'_>) -> Result<(OwnedFd, bool), NoNamespace> {
        let namespace = netns::of_socket(socket).map_err(|_| NoNamespace::Closed)?;
        // The kernel refuses to name an owner that is not the broker's own user namespace or one below.
        let owner = netns::owner(namespace.as_fd()).and_then(|owner| identity_of(owner.as_fd()));
        let (own, owner) = self.user.zip(owner.ok()).ok_or(NoNamespace::OfAnotherUser)?;
        if own != owner {
            return Ok((namespace, false));
        }
        let mut owned = lock(&self.owned);
        if owned.len() >= REMEMBERED {
            owned.clear();
        }
        owned.insert(cookie);
        Ok((namespace, true))
    }
}

fn close_unused(others: &mut HashMap<u64, Arc<Namespace>>) {
    others.retain(|_, namespace| Arc::strong_count(namespace) > 1);
}

/// Network namespaces, as far as the members of one domain may refer to them.
#[derive(Clone, Debug)]
pub struct View {
    /// All.
    pub namespaces: Arc<Namespaces>,
    /// The domain is this pod.
    pub pod: Option<u128>,
}

impl View {
    /// The namespace in which the sockets of this socket's namespace can be looked for. `account`: the domain's, for descriptors.
    pub fn of_socket(
        &self,
        cookie: u64,
        socket: &OwnedFd,
        account: &Arc<Account>,
    ) -> Result<Arc<Namespace>, NoNamespace> {
        self.namespaces.of_socket(cookie, socket, self.pod.is_some(), account)
    }
}

/// Locks. No call that another process can delay is made under these locks.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity_of(file: BorrowedFd<'_>) -> io::Result<Owner> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Opens a netlink socket in a namespace. A thread cannot leave a namespace that it has entered, so a thread is started for it,
/// and ends afterwards.
fn diag_in(namespace: OwnedFd) -> Option<Diag> {
    let make = move || {
        let _ = rights::raise(CapabilitySet::SYS_ADMIN); // if not, the next call fails
        netns::enter(namespace.as_fd()).ok().and_then(|()| Diag::open().ok())
    };
    let thread = std::thread::Builder::new().name("namespace".into()).stack_size(64 * 1024).spawn(make).ok()?;
    thread.join().ok()?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Budget;
    use sidestep_testkit::enter_new;

    /// A socket in a network namespace of its own. Needs root.
    fn socket_elsewhere() -> OwnedFd {
        let made = std::thread::spawn(|| {
            enter_new();
            rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("socket")
        });
        made.join().expect("a namespace (needs root)")
    }

    #[test]
    fn a_namespace_counts_for_the_domain_that_has_it_opened() {
        let view = View { namespaces: Arc::new(Namespaces::of_this_process()), pod: None };
        let account = Account::new(&Budget::new(3)); // of which one domain gets two
        let sockets = [(); 3].map(|()| socket_elsewhere());
        let open = |socket: &OwnedFd| {
            let cookie = sock::netns_cookie(socket.as_fd()).expect("cookie");
            view.of_socket(cookie, socket, &account)
        };
        let first = open(&sockets[0]).expect("room");
        let _second = open(&sockets[1]).expect("room");
        assert_eq!(account.held(), 2);
        assert!(Arc::ptr_eq(&first, &open(&sockets[0]).expect("it is open")));
        assert_eq!(open(&sockets[2]).err(), Some(NoNamespace::Full), "the domain has its share");
        assert_eq!(account.held(), 2, "once each");
        drop(first);
        let _third = open(&sockets[2]).expect("room, since nobody needs the first one");
        assert_eq!(account.held(), 2);
    }
}
