//! Who may share memory: trust domains.

use crate::cgroup::Place;
use std::collections::HashSet;
use std::sync::Arc;

/// Who a process is, as the kernel says at an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Where it runs.
    pub place: Arc<Place>,
}

impl Who {
    /// A user, wherever it is.
    pub fn user(uid: u32) -> Who {
        Who { uid, gid: u32::MAX, place: Arc::default() }
    }
}

/// Processes that may share memory with each other, as one `[[allow]]` names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// All processes of these users.
    pub uids: Vec<u32>,
    /// All processes of these groups.
    pub gids: Vec<u32>,
    /// All processes of these services of systemd.
    pub services: Vec<String>,
}

impl Rule {
    fn includes(&self, who: &Who) -> bool {
        let service = who.place.service.as_deref();
        self.uids.contains(&who.uid)
            || self.gids.contains(&who.gid)
            || service.is_some_and(|service| self.services.iter().any(|named| named == service))
    }
}

/// What the configuration says about trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Each `[[allow]]`.
    pub allow: Vec<Rule>,
    /// Processes of one pod of Kubernetes may share memory with each other.
    pub same_pod: bool,
}

/// Decides who may share memory. Each user may share memory with itself.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The broker's own effective uid.
    own: u32,
    /// The uid that stands for all users unknown to this user namespace, if there are any.
    nobody: Option<u32>,
    rules: Rules,
    listed: HashSet<u32>,
}

impl Trust {
    /// By these rules.
    pub fn new(own: u32, nobody: Option<u32>, rules: Rules) -> Trust {
        let listed = rules.allow.iter().flat_map(|rule| rule.uids.iter().copied()).collect();
        Trust { own, nobody, rules, listed }
    }

    /// `groups`: within each group, all users may share memory with each other.
    pub fn of_users(own: u32, nobody: Option<u32>, groups: &[Vec<u32>]) -> Trust {
        let rule = |uids: &Vec<u32>| Rule { uids: uids.clone(), ..Rule::default() };
        Trust::new(own, nobody, Rules { allow: groups.iter().map(rule).collect(), same_pod: false })
    }

    /// For this process, according to the system.
    pub fn of_this_process(rules: Rules) -> Trust {
        Trust::new(rustix::process::geteuid().as_raw(), stand_in_uid(), rules)
    }

    /// Whether the user may be a member. A broker of root serves everybody; any other serves its own user and those listed.
    pub fn may_join(&self, uid: u32) -> bool {
        self.own == 0 || uid == self.own || self.listed.contains(&uid)
    }

    /// Whether the user may ask for the status and detach connections.
    pub fn may_command(&self, uid: u32) -> bool {
        uid == self.own || uid == 0
    }

    /// Whether the two ends of a connection may share memory.
    pub fn may_share(&self, a: &Who, b: &Who) -> bool {
        if [a.uid, b.uid].iter().any(|uid| self.nobody == Some(*uid)) {
            return false;
        }
        let is_allowed = || self.rules.allow.iter().any(|rule| rule.includes(a) && rule.includes(b));
        a.uid == b.uid || is_allowed() || self.are_of_one_pod(a, b)
    }

    /// Whether both run in one pod, and the operator trusts pods.
    pub fn are_of_one_pod(&self, a: &Who, b: &Who) -> bool {
        self.rules.same_pod && a.place.pod.is_some() && a.place.pod == b.place.pod
    }

    /// Whether the operator trusts pods.
    pub fn knows_pods(&self) -> bool {
        self.rules.same_pod
    }

    /// Whether it matters where a process runs.
    pub fn asks_for_places(&self) -> bool {
        self.rules.same_pod || self.rules.allow.iter().any(|rule| !rule.services.is_empty())
    }

    /// Whether users other than the broker's own are expected.
    pub fn has_guests(&self) -> bool {
        self.rules != Rules::default()
    }
}

/// In a user namespace that does not map every uid, all unknown users have the same uid. That uid is never trusted.
fn stand_in_uid() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mapped: u64 = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum();
    if mapped >= u64::from(u32::MAX) {
        return None;
    }
    let uid = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok().and_then(|text| text.trim().parse().ok());
    Some(uid.unwrap_or(65534))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_only_the_same_user() {
        let trust = Trust::of_users(1000, None, &[]);
        let share = |a, b| trust.may_share(&Who::user(a), &Who::user(b));
        assert!(share(1000, 1000));
        assert!(!share(1000, 1001) && !share(0, 1000));
        assert!(trust.may_join(1000) && !trust.may_join(1001));
    }

    #[test]
    fn a_rule_allows_its_pairs_and_no_others() {
        let trust = Trust::of_users(0, None, &[vec![1000, 1337], vec![2000, 1337]]);
        let share = |a, b| trust.may_share(&Who::user(a), &Who::user(b));
        assert!(share(1337, 1000) && share(2000, 1337));
        assert!(!share(1000, 2000));
    }

    #[test]
    fn users_of_unknown_identity_never_share() {
        let mut rule = Rule { uids: vec![65534, 1000], services: vec!["nginx.service".into()], ..Rule::default() };
        rule.gids.push(65534);
        let trust = Trust::new(0, Some(65534), Rules { allow: vec![rule], same_pod: true });
        let unknown = Who { place: in_pod(1).place, ..Who::user(65534) };
        assert!(!trust.may_share(&unknown, &unknown) && !trust.may_share(&unknown, &Who::user(1000)));
        assert!(!trust.may_share(&unknown, &in_pod(1)));
    }

    fn in_service(uid: u32, name: &str) -> Who {
        Who { place: Arc::new(Place { pod: None, service: Some(name.into()) }), ..Who::user(uid) }
    }

    fn in_pod(pod: u128) -> Who {
        Who { place: Arc::new(Place { pod: Some(pod), service: None }), ..Who::user(pod as u32 + 500) }
    }

    #[test]
    fn all_processes_of_a_service_are_in_its_rule() {
        let services = vec!["nginx.service".to_owned()];
        let rule = Rule { uids: vec![1000], gids: vec![70], services };
        let trust = Trust::new(0, None, Rules { allow: vec![rule], same_pod: false });
        let [master, worker, other] =
            [in_service(0, "nginx.service"), in_service(33, "nginx.service"), in_service(33, "redis.service")];
        assert!(trust.may_share(&worker, &Who::user(1000)) && trust.may_share(&master, &worker));
        assert!(trust.may_share(&Who { gid: 70, ..Who::user(5) }, &worker));
        assert!(!trust.may_share(&other, &Who::user(1000)) && !trust.may_share(&Who::user(33), &Who::user(1000)));
        assert!(trust.asks_for_places() && trust.has_guests());
    }

    #[test]
    fn a_pod_is_a_domain_if_the_operator_says_so() {
        let (a, b) = (Who { uid: 1337, ..in_pod(1) }, in_pod(1));
        let with = |same_pod| Trust::new(0, None, Rules { same_pod, ..Rules::default() });
        assert!(with(true).may_share(&a, &b) && !with(false).may_share(&a, &b));
        assert!(!with(true).may_share(&a, &in_pod(2)));
        assert!(!with(true).may_share(&Who::user(1), &Who::user(2)), "no pod is no domain");
        assert!(!with(false).has_guests() && !with(false).asks_for_places());
    }

    #[test]
    fn commands_are_for_the_owner_and_root() {
        let trust = Trust::of_users(1000, None, &[vec![1000, 1337]]);
        assert!(trust.may_command(1000) && trust.may_command(0));
        assert!(!trust.may_command(1337));
    }
}
