//! Subordinate users (subuid(5)): numbers that a user may give to processes of its user namespaces, 65,536 as a rule. They may not
//! share memory with each other for that. But whoever has one of them has all of them, so they are one domain.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

/// Of the users of this system.
pub const OF_THIS_SYSTEM: &str = "/etc/subuid";
/// Of the users of the host, if this process is in a container and sees the host's processes: the file of an image says nothing of them.
pub const OF_THE_HOST: &str = "/proc/1/root/etc/subuid";

/// Who may have which numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subordinates(Vec<Granted>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Granted {
    uids: Range<u64>,
    /// The first number that the owner of these was granted. It stands for all of them. The owner does not: programs in its containers
    /// must not use up what its own programs need.
    counts_as: u32,
}

impl Subordinates {
    /// As this file has it now. Nothing is granted if there is none.
    pub fn read(file: &str) -> Subordinates {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!("cannot read {file}: {error}; each subordinate user counts as a user of its own");
            }
            String::new()
        });
        Subordinates::parse(&text)
    }

    /// Lines of `owner:first:count`. Other lines grant nothing.
    pub fn parse(text: &str) -> Subordinates {
        let mut firsts = HashMap::new();
        let granted = text.lines().filter_map(|line| {
            let mut fields = line.trim().split(':');
            let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
            let (first, count) = (first.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
            let counts_as = *firsts.entry(owner).or_insert(first);
            Some(Granted { uids: u64::from(first)..u64::from(first) + u64::from(count), counts_as })
        });
        Subordinates(granted.collect())
    }

    /// The user that stands for this one in a domain.
    pub fn counts_as(&self, uid: u32) -> u32 {
        let granted = self.0.iter().find(|granted| granted.uids.contains(&u64::from(uid)));
        granted.map_or(uid, |granted| granted.counts_as)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_of_an_owner_are_one() {
        let lines = ["alice:100000:65536", "# comment", "bob:165536:65536", "", "alice:900000:10", "broken:1", "7:x:5"];
        let granted = Subordinates::parse(&lines.join("\n"));
        let counts_as = |uid| granted.counts_as(uid);
        for uid in [100_000, 165_535, 900_000, 900_009] {
            assert_eq!(counts_as(uid), 100_000, "{uid}");
        }
        assert_eq!((counts_as(165_536), counts_as(231_071)), (165_536, 165_536));
        for other in [0, 1, 1000, 99_999, 231_072, 900_010, u32::MAX] {
            assert_eq!(counts_as(other), other);
        }
        assert_eq!(Subordinates::parse("").counts_as(100_001), 100_001);
        assert_eq!(Subordinates::parse("7:4294967290:10").counts_as(u32::MAX), 4_294_967_290);
    }
}
