//! Enforces policies in captured namespaces: when policies change, and when a namespace is visited.

use super::PolicyPlan;
use super::controller::{CaptureController, Pod};
use super::enforced::Subject;
use super::lifecycle::Stage;
use super::trouble::EnforceError;
use super::visit::UNENFORCED;
use sidestep_ebpf::policy::Addresses;
use sidestep_error::chain;
use sidestep_mesh::capture::tables::PodNetwork;
use sidestep_mesh::object::Name;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

impl CaptureController<'_> {
    pub fn apply_bypasses(&mut self) {
        let unseen = self.stage != Stage::Complete || self.pods.values().any(|pod| pod.is_obscure);
        self.enforcer.apply_bypasses(&self.policy_owners(), unseen);
    }

    /// Each namespace, and the pod whose policies apply there.
    pub fn policy_owners(&self) -> BTreeMap<u64, Name> {
        self.namespaces
            .iter()
            .filter_map(|(cookie, namespace)| Some((cookie, namespace.policy_owner()?.clone())))
            .collect()
    }

    /// Namespaces that have policies already, or the programs, need no visit.
    pub fn enforce_plan(&mut self, plan: PolicyPlan) {
        let known = self.policy_owners();
        let (enforcer, pods) = (&mut self.enforcer, &self.pods);
        let before: BTreeSet<u64> = known.keys().copied().filter(|cookie| enforcer.is_policed(*cookie)).collect();
        let namespaces =
            self.namespaces.iter().filter(|(cookie, namespace)| before.contains(cookie) || namespace.applied.is_some());
        let namespaces = namespaces.filter_map(|(cookie, namespace)| {
            let (pod, addresses) = (namespace.policy_owner()?, &namespace.addresses);
            Some(Subject { cookie, pod, held: None, addresses, given: given(pods, pod) })
        });
        let mut failed: BTreeMap<u64, EnforceError> = enforcer.apply(plan, namespaces).into_iter().collect();
        for (cookie, name) in known {
            let is_done = before.contains(&cookie) || self.namespaces.get(cookie).is_some_and(|s| s.applied.is_some());
            if let Some(pod) = self.pods.get_mut(&name).filter(|_| is_done) {
                pod.unenforced = failed.remove(&cookie).map(|error| chain(&error).to_string());
                if pod.unenforced.is_some() {
                    self.visit_soon(&name, UNENFORCED);
                }
                self.note(&name);
            } else {
                self.visit_soon(&name, Duration::ZERO);
            }
        }
        self.bypasses_stale = true;
    }

    /// Called before the namespace is captured, so that no pod is captured without its policies.
    pub fn enforce_here(&mut self, name: &Name, cookie: u64, held: &Path, network: &PodNetwork) {
        let namespace = self.namespaces.get_mut(cookie).expect("the visited namespace is claimed");
        namespace.addresses = Addresses::from(network);
        let addresses = &namespace.addresses;
        let given = given(&self.pods, name);
        let enforced = self.enforcer.enforce(&Subject { cookie, pod: name, held: Some(held), addresses, given });
        if let Some(pod) = self.pods.get_mut(name) {
            let error = enforced.err().map(|error| error.known_as(held, &pod.path));
            pod.unenforced = error.map(|error| chain(&error).to_string());
        }
        self.bypasses_stale = true;
    }
}

fn given<'a>(pods: &'a HashMap<Name, Pod>, name: &Name) -> &'a [IpAddr] {
    pods.get(name).map_or(&[], |pod| &pod.capture.addresses)
}
