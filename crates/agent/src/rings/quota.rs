//! How many Events a pod gets, whatever its containers are called: the announcer counts by container.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events of a pod in each [`PERIOD`].
const MOST: u32 = 10;
/// After that a pod counts anew.
const PERIOD: Duration = Duration::from_secs(3600);
/// Pods that are counted. Further ones have to wait until one of these is forgotten.
const MOST_PODS: usize = 1024;

#[derive(Default)]
pub struct Quota {
    /// By UID: since when, and how many.
    pods: HashMap<Arc<str>, (Instant, u32)>,
}

impl Quota {
    pub fn permits(&mut self, pod: &Arc<str>, now: Instant) -> bool {
        if self.pods.len() >= MOST_PODS {
            self.pods.retain(|_, (since, _)| now < *since + PERIOD);
        }
        if self.pods.len() >= MOST_PODS && !self.pods.contains_key(pod) {
            return false;
        }
        let (since, count) = self.pods.entry(Arc::clone(pod)).or_insert((now, 0));
        if now >= *since + PERIOD {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_no_more_than_its_share() {
        let (mut quota, begin) = (Quota::default(), Instant::now());
        let permitted = |quota: &mut Quota, pod: &str, at| (0..100).filter(|_| quota.permits(&pod.into(), at)).count();
        assert_eq!(permitted(&mut quota, "a", begin), 10);
        assert_eq!(permitted(&mut quota, "b", begin), 10);
        assert_eq!(permitted(&mut quota, "a", begin + PERIOD), 10);
    }

    #[test]
    fn many_pods_take_bounded_memory() {
        let (mut quota, begin) = (Quota::default(), Instant::now());
        let permitted = (0..5000).filter(|n: &u32| quota.permits(&n.to_string().into(), begin)).count();
        assert_eq!((permitted, quota.pods.len()), (MOST_PODS, MOST_PODS));
        assert!(quota.permits(&"later".into(), begin + PERIOD));
        assert_eq!(quota.pods.len(), 1);
    }
}
