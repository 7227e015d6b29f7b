//! Names for the numbers by which the kernel half counts.

use crate::view::View;
use sidestep_agent_api::Workload;
use sidestep_ebpf::watch::Between;
use sidestep_mesh::object::Name;
use sidestep_mesh::policy::identity::{FIRST, Identity, NODE, UNKNOWN};
use std::collections::{HashMap, HashSet};

/// Labels that name the workload of a pod; the first one that the pod has counts.
const WORKLOAD: [&str; 4] = ["app.kubernetes.io/name", "app", "k8s-app", "service.istio.io/canonical-name"];

#[derive(Clone, Default)]
pub struct Names {
    identities: HashMap<u32, Workload>,
    services: HashMap<u32, Name>,
    /// The first number of this agent; lower ones are an earlier agent's.
    first: u32,
}

impl Names {
    pub fn new(view: &View) -> Names {
        let identities = view.policing.identities.iter().map(|(identity, number)| (number, workload(identity)));
        let services = view.reconciler.ports().into_iter().map(|port| (port.service, port.key.service.clone()));
        Names { identities: identities.collect(), services: services.collect(), first: view.policing.first }
    }

    /// None: nobody is known by this number any more.
    pub fn identity(&self, number: u32) -> Option<Workload> {
        match number {
            UNKNOWN => Some(named("unknown")),
            NODE => Some(named("node")),
            _ => self.identities.get(&number).cloned(),
        }
    }

    pub fn service(&self, number: u32) -> Option<&Name> {
        self.services.get(&number)
    }

    pub fn services(&self) -> HashSet<&Name> {
        self.services.values().collect()
    }

    #[cfg(test)]
    pub fn of(identities: &[(u32, &str)], services: &[(u32, Name)]) -> Names {
        let identities = identities.iter().map(|(number, name)| (*number, named(name))).collect();
        Names { identities, services: services.iter().cloned().collect(), first: FIRST }
    }

    pub fn is_of_earlier(&self, between: &Between) -> bool {
        [between.client, between.server].iter().any(|number| (FIRST..self.first).contains(number))
    }
}

fn named(workload: &str) -> Workload {
    Workload { namespace: String::new(), workload: workload.into() }
}

/// Stands for all workloads beyond the limit.
pub fn other() -> Workload {
    named("other")
}

fn workload(of: &Identity) -> Workload {
    let name = WORKLOAD.iter().find_map(|label| of.labels.get(*label));
    let workload = name.map_or("unnamed", |name| name).to_string();
    Workload { namespace: of.namespace.to_string(), workload }
}
