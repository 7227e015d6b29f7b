//! Pods whose capture ends. From then on no new connection is redirected to the proxy. Connections under way still arrive, and
//! the proxy still gets their original destinations; then everything is removed.

use super::{inbound, underway};
use crate::netns;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two looks at a namespace: at least so long a proxy has to ask for the original destination of a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// So many looks in a row must find nothing: the second one sees a connect(2) that was in progress during the first.
const LOOKS: u32 = 2;
/// Longest wait: a proxy that accepts nothing does not keep its pod captured for longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The numbers of a pod's rules and of its network in the tables.
pub type Numbered = [u32; 2];

/// Pods by their namespace's cookie.
#[derive(Default)]
pub struct Ending(BTreeMap<u64, Pod>);

struct Pod {
    /// None: written by an earlier process.
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

    /// Cancels the end: the pod is captured again, or has been removed.
    pub fn remove(&mut self, cookie: u64) -> Option<Numbered> {
        self.0.remove(&cookie)?.numbers
    }

    /// When the next look is due.
    pub fn next(&self) -> Option<Instant> {
        self.0.values().map(|pod| pod.due).min()
    }

    /// Looks at the namespaces that are due, and returns those that may be removed. `ports`: of a pod's proxy.
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
        // A namespace without a file has no processes, so nothing dials there.
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
        // If the removal fails it is tried again, after a longer time.
        self.due = Instant::now() + if is_over { PATIENCE } else { PAUSE };
        is_over
    }
}
