//! How long ago the API server was heard of each kind of objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// As requests name them.
const RESOURCES: [&str; 6] = ["services", "endpointslices", "nodes", "pods", "namespaces", "networkpolicies"];

/// Of all of them.
const VERSION: &str = "v1";

/// Shared by the source, which hears, and the metrics.
#[derive(Clone)]
pub struct Heard {
    begun: Instant,
    /// For each resource, milliseconds since `begun` plus 1. 0: it was never asked for.
    at: Arc<[AtomicU64; RESOURCES.len()]>,
}

/// One of the resources.
#[derive(Clone, Copy)]
pub struct Resource(usize);

impl Heard {
    pub fn new() -> Heard {
        Heard { begun: Instant::now(), at: Arc::default() }
    }

    /// Of the path of a request for a list or a watch of all namespaces: the version comes before the resource. In the path of one object
    /// its name is last, and a tenant may call a pod `services`.
    pub fn resource(path: &str) -> Option<Resource> {
        let mut from_the_end = path.rsplit('/');
        let (last, version) = (from_the_end.next()?, from_the_end.next()?);
        if version != VERSION {
            return None;
        }
        RESOURCES.iter().position(|resource| *resource == last).map(Resource)
    }

    /// A request was sent. From the first one on, silence counts.
    pub fn ask(&self, of: Resource) {
        // Relaxed: each value stands alone.
        let _ = self.at[of.0].compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Something was received.
    pub fn note(&self, of: Resource) {
        self.at[of.0].store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64 + 1
    }

    /// Of each resource that was asked for, how long ago it was heard of.
    pub fn ages(&self) -> Vec<(&'static str, Duration)> {
        let now = self.now();
        let all = RESOURCES.iter().zip(self.at.iter().map(|at| at.load(Ordering::Relaxed)));
        all.filter(|(_, at)| *at > 0)
            .map(|(resource, at)| (*resource, Duration::from_millis(now.saturating_sub(at))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_has_an_age() {
        let heard = Heard::new();
        assert!(heard.ages().is_empty());
        let pods = Heard::resource("/api/v1/pods").unwrap();
        heard.ask(pods);
        std::thread::sleep(Duration::from_millis(20));
        heard.ask(pods);
        let ages = heard.ages();
        assert!(ages.len() == 1 && ages[0].0 == "pods" && ages[0].1 >= Duration::from_millis(20), "{ages:?}");
        heard.note(pods);
        assert!(heard.ages()[0].1 < Duration::from_millis(20));
        assert!(Heard::resource("/apis/events.k8s.io/v1/namespaces/default/events").is_none());
    }

    #[test]
    fn an_object_that_is_called_like_a_resource_is_none() {
        for list in
            ["/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/nodes", "/apis/networking.k8s.io/v1/networkpolicies"]
        {
            assert!(Heard::resource(list).is_some(), "{list}");
        }
        for one in
            ["/api/v1/namespaces/shop/pods/services", "/api/v1/nodes/pods", "/api/v1/namespaces/pods", "services", ""]
        {
            assert!(Heard::resource(one).is_none(), "{one}");
        }
    }
}
