//! Policies in the namespaces that are kept: when they change, and when a namespace is visited.

use super::Court;
use super::controller::CaptureController;
use super::judging::{JudgeError, Space};
use super::lifecycle::Stage;
use super::visit::UNJUDGED;
use sidestep_ebpf::error::chain;
use sidestep_ebpf::policy::Addresses;
use sidestep_mesh::capture::tables::Place;
use sidestep_mesh::object::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

impl CaptureController<'_> {
    pub fn lead(&mut self) {
        let unseen = self.stage != Stage::Complete || self.pods.values().any(|pod| pod.is_obscure);
        self.judging.lead(&self.whose(), unseen);
    }

    /// Namespaces, and whose policies count there.
    pub fn whose(&self) -> BTreeMap<u64, Name> {
        self.spaces.iter().filter_map(|(cookie, space)| Some((cookie, space.whose()?.clone()))).collect()
    }

    /// What is judged already, or has its programs, need not be visited.
    pub fn rejudge(&mut self, court: Court) {
        let known = self.whose();
        let judging = &mut self.judging;
        let before: BTreeSet<u64> = known.keys().copied().filter(|cookie| judging.is_judged(*cookie)).collect();
        let spaces = self.spaces.iter().filter(|(cookie, space)| before.contains(cookie) || space.applied.is_some());
        let spaces = spaces.filter_map(|(cookie, space)| {
            Some(Space { cookie, whose: space.whose()?, held: None, addresses: &space.addresses })
        });
        let mut failed: BTreeMap<u64, JudgeError> = judging.take(court, spaces).into_iter().collect();
        for (cookie, name) in known {
            let is_done = before.contains(&cookie) || self.spaces.get(cookie).is_some_and(|s| s.applied.is_some());
            if let Some(pod) = self.pods.get_mut(&name).filter(|_| is_done) {
                pod.unjudged = failed.remove(&cookie).map(|error| chain(&error).to_string());
                if pod.unjudged.is_some() {
                    self.visit_soon(&name, UNJUDGED);
                }
                self.note(&name);
            } else {
                self.visit_soon(&name, Duration::ZERO);
            }
        }
        self.bypasses_stale = true;
    }

    /// First of all, so that nothing is captured that is not judged.
    pub fn judge_here(&mut self, name: &Name, cookie: u64, held: &Path, place: &Place) {
        let space = self.spaces.get_mut(cookie).expect("it is claimed");
        space.addresses = Addresses::from(place);
        let addresses = &space.addresses;
        let judged = self.judging.judge(&Space { cookie, whose: name, held: Some(held), addresses });
        if let Some(pod) = self.pods.get_mut(name) {
            let error = judged.err().map(|error| error.known_as(held, &pod.path));
            pod.unjudged = error.map(|error| chain(&error).to_string());
        }
        self.bypasses_stale = true;
    }
}
