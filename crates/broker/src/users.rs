//! Which users may share memory.

use crate::raw::sock::Sender;
use std::collections::HashSet;

/// Pairs of users that may share memory. Each user may share memory with itself.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// The broker's own effective uid.
    own: u32,
    /// The uid that stands for all users unknown to this user namespace, if there are any.
    nobody: Option<u32>,
    /// (smaller, larger)
    pairs: HashSet<(u32, u32)>,
    listed: HashSet<u32>,
}

impl Users {
    /// `groups`: within each group, all users may share memory with each other.
    pub fn new(own: u32, nobody: Option<u32>, groups: &[Vec<u32>]) -> Users {
        let mut users = Users { own, nobody, ..Users::default() };
        for group in groups {
            for &a in group {
                users.listed.insert(a);
                users.pairs.extend(group.iter().map(|&b| (a.min(b), a.max(b))));
            }
        }
        users
    }

    /// For this process, according to the system.
    pub fn of_this_process(groups: &[Vec<u32>]) -> Users {
        Users::new(rustix::process::geteuid().as_raw(), stand_in_uid(), groups)
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
    pub fn may_share(&self, a: u32, b: u32) -> bool {
        if self.nobody == Some(a) || self.nobody == Some(b) {
            return false;
        }
        a == b || self.pairs.contains(&(a.min(b), a.max(b)))
    }

    /// Whether users other than the broker's own are expected.
    pub fn has_guests(&self) -> bool {
        !self.listed.is_empty()
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

/// The system's databases of users cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.desc())]
pub struct LookUpError(nix::errno::Errno);

/// The number of the user with this name, from the system's databases (getpwnam(3)).
pub fn by_name(name: &str) -> Result<Option<u32>, LookUpError> {
    let found = nix::unistd::User::from_name(name).map_err(LookUpError)?;
    Ok(found.map(|user| user.uid.as_raw()))
}

/// The credentials of the other end of a connected Unix socket.
pub fn peer_of(socket: &impl rustix::fd::AsFd) -> std::io::Result<Sender> {
    crate::raw::sock::peer(socket.as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_only_the_same_user() {
        let users = Users::new(1000, None, &[]);
        assert!(users.may_share(1000, 1000));
        assert!(!users.may_share(1000, 1001));
        assert!(!users.may_share(0, 1000));
        assert!(users.may_join(1000) && !users.may_join(1001));
    }

    #[test]
    fn a_group_allows_its_pairs_and_no_others() {
        let users = Users::new(0, None, &[vec![1000, 1337], vec![2000, 1337]]);
        assert!(users.may_share(1337, 1000) && users.may_share(2000, 1337));
        assert!(!users.may_share(1000, 2000));
    }

    #[test]
    fn users_of_unknown_identity_never_share() {
        let users = Users::new(0, Some(65534), &[vec![65534, 1000]]);
        assert!(!users.may_share(65534, 65534) && !users.may_share(65534, 1000));
    }

    #[test]
    fn users_have_names() {
        assert_eq!(by_name("root"), Ok(Some(0)));
        assert_eq!(by_name("no such user"), Ok(None));
        assert!(by_name("\0").is_err() || by_name("\0") == Ok(None));
    }

    #[test]
    fn commands_are_for_the_owner_and_root() {
        let users = Users::new(1000, None, &[vec![1000, 1337]]);
        assert!(users.may_command(1000) && users.may_command(0));
        assert!(!users.may_command(1337));
    }
}
