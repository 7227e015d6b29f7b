//! Where members run, as far as that decides who may share memory.
//!
//! A member joins by a socket, and the kernel says which process had connected it. That process's cgroup counts for offers of that very
//! process only: one that got the socket from it may be anywhere. Processes are moved rarely, and only by root; a pair that depends on
//! a place is made only if both ends are still there.

use super::Broker;
use crate::cgroup::Place;
use crate::matching::Offer;
use crate::proof::SocketFacts;
use crate::raw::sock;
use crate::trust::Who;
use crate::wire::Sender;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::time::Timespec;
use std::sync::Arc;

impl Broker {
    /// Who makes an offer.
    pub(super) fn who(&self, id: u64, sender: Sender, facts: &SocketFacts) -> Who {
        let conn = self.conns.get(&id).filter(|conn| conn.peer.pid == sender.pid && sender.pid != 0);
        let mut place = conn.map(|conn| conn.place.clone()).unwrap_or_default();
        if place.pod.is_some() && self.namespaces.is_own(facts.space.netns) {
            // A pod in the host's network: its connections are the host's.
            place = Arc::new(Place { pod: None, ..(*place).clone() });
        }
        Who { uid: sender.uid, gid: sender.gid, place }
    }

    /// Whether one of these ends has left the place by which it may be trusted. Ends of one user are trusted by that, except in a pod's
    /// own network namespace.
    pub(super) fn have_moved(&self, both: [&Offer; 2]) -> bool {
        let has_moved = |offer: &&Offer| {
            let joined = self.conns.get(&offer.ticket.member).map(|conn| (conn.peer.pid, &conn.place));
            offer.who.place.is_known() && joined.is_none_or(|(pid, place)| Place::of_process(pid) != **place)
        };
        let by_place = both[0].who.uid != both[1].who.uid || both[0].facts.space.pod.is_some();
        self.settings.trust.asks_for_places() && by_place && both.iter().any(has_moved)
    }
}

/// Where the process at the other end of a socket runs. None: it has ended, so that nobody can say. Nowhere, if the kernel does not
/// know this question (before Linux 6.5). Asked for each member, since a configuration that is read later may ask for places.
pub(super) fn place_of(socket: BorrowedFd<'_>, pid: u32) -> Option<Place> {
    let pidfd = match sock::peer_pidfd(socket) {
        Ok(pidfd) => pidfd,
        Err(e) if e.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => return Some(Place::default()),
        Err(_) => return None,
    };
    let place = Place::of_process(pid);
    // While the process lives, its number is nobody else's.
    let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    (poll(&mut ended, Some(&now)) == Ok(0)).then_some(place)
}
