//! Pods and containers that the runtime had before it knew the plugin. Large nodes name them in several messages.

use crate::api::{Container, PodSandbox, SynchronizeRequest};
use std::collections::HashMap;

/// Most containers of a node that are looked at.
const MOST: usize = 10_000;

/// What has been named so far.
#[derive(Default)]
pub struct Present {
    pods: HashMap<String, PodSandbox>,
    containers: Vec<Container>,
}

impl Present {
    /// Another message has come.
    pub fn add(&mut self, request: SynchronizeRequest) {
        let room = |present: usize| MOST.saturating_sub(present);
        let pods = request.pods.into_iter().take(room(self.pods.len()));
        self.pods.extend(pods.map(|pod| (pod.id.clone(), pod)));
        self.containers.extend(request.containers.into_iter().take(room(self.containers.len())));
    }

    /// Each container with its pod.
    pub fn containers(&self) -> impl Iterator<Item = (&PodSandbox, &Container)> {
        self.containers.iter().filter_map(|container| Some((self.pods.get(&container.pod_sandbox_id)?, container)))
    }
}
