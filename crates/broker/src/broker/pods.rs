//! What the members of each pod have counted, for as many pods as a status names.
//!
//! A pod has a name in the status while it has members, and after that until another pod needs the place: then the pod that ended
//! first is named no more, and its counts join those of all others. A member counts in one place from its beginning to its end. So a
//! count only grows as long as it is there.

use crate::domain::{Domain, Scope};
use crate::status::{Status, Totals};
use std::collections::{BTreeMap, HashSet};

#[derive(Default)]
pub struct Pods {
    named: BTreeMap<u128, Named>,
    /// Members that joined while there was no place for their pod.
    unnamed: HashSet<u64>,
    /// Of members that are gone, and have counted under no name.
    others: Totals,
    /// How often the last member of a pod has left.
    ends: u64,
}

#[derive(Default)]
struct Named {
    /// How many members it has.
    members: u64,
    /// Counts of members that are gone.
    gone: Totals,
    /// The number of its end, if it has no members.
    ended: u64,
}

impl Pods {
    /// The member `id` is new.
    pub fn joined(&mut self, id: u64, scope: Scope) {
        let Scope::Domain(Domain::Pod(uid)) = scope else { return };
        if self.named.contains_key(&uid) || self.make_room() {
            self.named.entry(uid).or_default().members += 1;
        } else {
            self.unnamed.insert(id);
        }
    }

    /// False: all pods that are named have members.
    fn make_room(&mut self) -> bool {
        if self.named.len() < Status::MOST_PODS {
            return true;
        }
        let ended = self.named.iter().filter(|(_, pod)| pod.members == 0).min_by_key(|(_, pod)| pod.ended);
        let Some(uid) = ended.map(|(&uid, _)| uid) else { return false };
        if let Some(pod) = self.named.remove(&uid) {
            self.others.add(&pod.gone);
        }
        true
    }

    /// The member `id` is gone.
    pub fn left(&mut self, id: u64, scope: Scope, totals: &Totals) {
        let Scope::Domain(Domain::Pod(uid)) = scope else { return };
        if self.unnamed.remove(&id) {
            return self.others.add(totals);
        }
        if let Some(pod) = self.named.get_mut(&uid) {
            pod.gone.add(totals);
            pod.members = pod.members.saturating_sub(1);
            if pod.members == 0 {
                self.ends += 1;
                pod.ended = self.ends;
            }
        }
    }

    /// Reports what members have counted that are gone.
    pub fn report(&self, status: &mut Status) {
        status.pods = self.named.iter().map(|(uid, pod)| (text(*uid), pod.gone.clone())).collect();
        status.other_pods = self.others.clone();
    }

    /// Where the status counts the member `id`. None: its domain is no pod.
    pub fn place<'a>(&self, id: u64, scope: Scope, status: &'a mut Status) -> Option<&'a mut Totals> {
        let Scope::Domain(Domain::Pod(uid)) = scope else { return None };
        if self.unnamed.contains(&id) {
            return Some(&mut status.other_pods);
        }
        Some(status.pods.entry(text(uid)).or_default())
    }
}

/// As Kubernetes writes the UID.
fn text(uid: u128) -> String {
    let digits = format!("{uid:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(uid: u64) -> Scope {
        Scope::Domain(Domain::Pod(uid.into()))
    }

    fn bytes(ring_rx: u64) -> Totals {
        Totals { ring_rx, ..Totals::default() }
    }

    fn reported(pods: &Pods) -> Status {
        let mut status = Status::default();
        pods.report(&mut status);
        assert!(status.pods.len() <= Status::MOST_PODS);
        status
    }

    /// Whether the member counts among the others.
    fn is_other(pods: &Pods, id: u64, uid: u64) -> bool {
        let mut status = reported(pods);
        let before = status.other_pods.ring_rx;
        pods.place(id, scope(uid), &mut status).expect("a pod").ring_rx += 1;
        status.other_pods.ring_rx > before
    }

    #[test]
    fn pods_beyond_the_limit_count_together_and_living_ones_keep_their_names() {
        let mut pods = Pods::default();
        let most = Status::MOST_PODS as u64;
        (0..most).for_each(|id| pods.joined(id, scope(id)));
        pods.joined(most, scope(most));
        assert!(is_other(&pods, most, most) && !is_other(&pods, 0, 0));
        assert_eq!(reported(&pods).pods.len(), Status::MOST_PODS);
        // Two end, the second one first. What they have counted stays until others need their places.
        pods.left(1, scope(1), &bytes(7));
        pods.left(0, scope(0), &bytes(5));
        assert_eq!(reported(&pods).other_pods, bytes(0));
        assert_eq!(reported(&pods).pods[&text(1)], bytes(7));
        pods.joined(1000, scope(1000));
        let status = reported(&pods);
        assert_eq!((status.pods.get(&text(1)), status.pods.get(&text(0))), (None, Some(&bytes(5))));
        assert_eq!(status.other_pods, bytes(7));
        // The pod without a name gets one, and its first member stays where it has counted so far.
        pods.joined(1001, scope(most));
        assert_eq!(reported(&pods).other_pods, bytes(12));
        assert!(is_other(&pods, most, most) && !is_other(&pods, 1001, most));
        pods.left(most, scope(most), &bytes(3));
        pods.left(1001, scope(most), &bytes(2));
        let status = reported(&pods);
        assert_eq!((status.other_pods, &status.pods[&text(most.into())]), (bytes(15), &bytes(2)));
    }

    #[test]
    fn a_user_is_no_pod() {
        let mut pods = Pods::default();
        pods.joined(1, Scope::Operator);
        pods.left(1, Scope::Operator, &bytes(1));
        let mut status = reported(&pods);
        assert!(pods.place(1, Scope::Operator, &mut status).is_none());
        assert_eq!((status.pods.len(), status.other_pods), (0, bytes(0)));
    }

    #[test]
    fn a_uid_is_written_as_kubernetes_does() {
        assert_eq!(text(0x1f0b8a52_0001_4e5f_9a8b_0123456789c3), "1f0b8a52-0001-4e5f-9a8b-0123456789c3");
    }
}
