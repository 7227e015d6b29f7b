//! What becomes a Kubernetes Event: captured pods with troubles, and Services that are not programmed whole.

use super::Node;
use crate::announce::{Reason, Subject};
use crate::captures::CaptureStatus;
use crate::report::described;
use sidestep_mesh::object::Name;
use sidestep_mesh::reconcile::Problem;
use std::collections::BTreeSet;

/// Problems of Services that are told at a time; the others are told after the next change.
const MOST: usize = 10;

impl Node {
    pub(super) fn announce_captures(&mut self, news: &[(Name, Option<CaptureStatus>)], trouble: Option<&str>) {
        if let Some(trouble) = trouble.filter(|trouble| self.view.pods.figures.trouble.as_deref() != Some(trouble)) {
            self.announcer.warn(Subject::Node, Reason::PolicyTrouble, trouble);
        }
        for (name, status) in news {
            let troubles = status.as_ref().map_or(&[][..], |status| &status.troubles);
            if !troubles.is_empty() {
                let uid = self.view.state.pod(name).and_then(|pod| pod.uid.clone());
                let (namespace, name) = (name.namespace.clone(), name.name.clone());
                let subject = Subject::Pod { namespace, name, uid, container: None };
                self.announcer.warn(subject, Reason::CaptureTrouble, troubles.join("; "));
            }
        }
    }

    /// Each problem once, as long as it lasts.
    pub(super) fn announce_problems(&mut self) {
        let reason = |problem: &Problem| match problem {
            Problem::Taken { .. } => Reason::AddressConflict,
            Problem::Full { .. } => Reason::ResourceExhaustion,
        };
        let problems = self.view.reconciler.problems();
        let mut lasting = BTreeSet::new();
        let mut new = Vec::new();
        for (name, problem) in problems {
            let key = (name.clone(), reason(problem));
            if !self.announced.contains(&key) && new.len() < MOST {
                new.push((key.1, format!("Service {name}: {}", described(problem))));
            } else if !self.announced.contains(&key) {
                continue;
            }
            lasting.insert(key);
        }
        self.announced = lasting;
        for (reason, note) in new {
            self.announcer.warn(Subject::Node, reason, note);
        }
    }
}
