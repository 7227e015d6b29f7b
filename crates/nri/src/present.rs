//! Pods and containers that the runtime had before it knew the plugin. Large nodes name them in several messages, and pods may have
//! megabytes of arguments and variables: only what is looked at is kept.

use crate::api::{Container, PodSandbox, SynchronizeRequest};
use sidestep_agent_api::RINGS;
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
    /// Another message has come. Of its containers those count for which `counts` says so.
    pub fn add(&mut self, request: SynchronizeRequest, counts: impl Fn(&Container) -> bool) {
        let room = |present: usize| MOST.saturating_sub(present);
        let pods = request.pods.into_iter().take(room(self.pods.len()));
        self.pods.extend(pods.map(|pod| (pod.id.clone(), reduced(pod))));
        let containers = request.containers.into_iter().filter(counts).take(room(self.containers.len()));
        self.containers.extend(containers.map(named));
    }

    /// Each container with its pod.
    pub fn containers(&self) -> impl Iterator<Item = (&PodSandbox, &Container)> {
        self.containers.iter().filter_map(|container| Some((self.pods.get(&container.pod_sandbox_id)?, container)))
    }
}

fn reduced(mut pod: PodSandbox) -> PodSandbox {
    pod.labels.retain(|name, _| name.starts_with(RINGS));
    pod.annotations.retain(|name, _| name.starts_with(RINGS));
    pod
}

fn named(container: Container) -> Container {
    let Container { id, pod_sandbox_id, name, .. } = container;
    Container { id, pod_sandbox_id, name, ..Container::default() }
}
