//! Pods that are captured no more. Nothing new goes to their proxy from then on; what is under way to it arrives, and the
//! proxy is told what it asks of it, before everything goes.

use super::{inbound, underway};
use crate::netns;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two looks at a namespace. So long a proxy has, at least, to ask of a connection that it has just accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Looks in a row that have to find nothing: whoever is in connect(2) right now comes to be seen by the second.
const LOOKS: u32 = 2;
/// A proxy that accepts nothing does not keep its pod for longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// By which a pod's rules and its place are found in the tables.
pub type Numbered = [u32; 2];

/// By the namespace's cookie.
#[derive(Default)]
pub struct Ending(BTreeMap<u64, Pod>);

struct Pod {
    /// None: another life has written them.
    numbers: Option<Numbered>,
    begun: Instant,
    due: Instant,
    /// Looks in a row that have found nothing.
    clear: u32,
}

impl Ending {
    pub fn begin(&mut self, cookie: u64, numbers: Option<Numbered>) {
        let now = Instant::now();
        self.0.entry(cookie).or_insert(Pod { numbers, begun: now, due: now + PAUSE, clear: 0 });
    }

    /// It is captured again, or was taken away.
    pub fn remove(&mut self, cookie: u64) -> Option<Numbered> {
        self.0.remove(&cookie)?.numbers
    }

    /// When the next look is due.
    pub fn next(&self) -> Option<Instant> {
        self.0.values().map(|pod| pod.due).min()
    }

    /// Looks at the namespaces that are due; those that may be taken away. `ports`: of a pod's proxy.
    pub fn poll(&mut self, pins: &Path, ports: impl Fn(u64) -> Option<[u16; 2]>) -> Vec<u64> {
        let now = Instant::now();
        let due: BTreeSet<u64> = self.0.iter().filter(|(_, pod)| pod.due <= now).map(|(cookie, _)| *cookie).collect();
        if due.is_empty() {
            return Vec::new();
        }
        let inodes: BTreeMap<u64, u64> =
            due.iter().filter_map(|cookie| Some((*cookie, inbound::inode(pins, *cookie)?))).collect();
        let mut files = BTreeMap::new();
        for (inode, file) in netns::files_of(&inodes.values().copied().collect()) {
            files.entry(inode).or_insert(file);
        }
        // Where nobody is to be found nobody dials.
        let is_clear = |cookie: &u64| {
            let file = inodes.get(cookie).and_then(|inode| files.get(inode));
            let (Some(file), Some(ports)) = (file, ports(*cookie)) else { return true };
            !underway::is_any(file, ports).unwrap_or(false)
        };
        due.into_iter()
            .filter(|cookie| self.0.get_mut(cookie).is_some_and(|pod| pod.is_over(is_clear(cookie))))
            .collect()
    }
}

impl Pod {
    fn is_over(&mut self, is_clear: bool) -> bool {
        self.clear = if is_clear { self.clear + 1 } else { 0 };
        let is_over = self.clear >= LOOKS || self.begun.elapsed() >= PATIENCE;
        // If it cannot be taken away, that is tried again, but not at once.
        self.due = Instant::now() + if is_over { PATIENCE } else { PAUSE };
        is_over
    }
}
