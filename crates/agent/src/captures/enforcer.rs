//! Writes the tables of policies and bypasses for the namespaces that are visited.
//!
//! Policies and captures share a thread, since both use the same program in a namespace: it is removed when neither needs it.

use super::PolicyPlan;
use super::enforced::{Subject, Tables, Written};
use super::trouble::{EnforceError, Trouble};
use crate::settings::Settings;
use sidestep_agent_api::Fill;
use sidestep_ebpf::admission::Admission;
use sidestep_ebpf::error::Error;
use sidestep_ebpf::policy;
use sidestep_ebpf::services::Options;
use sidestep_error::chain;
use sidestep_mesh::object::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub struct PolicyEnforcer {
    options: Options,
    arms: bool,
    tables: Option<Tables>,
    plan: Option<PolicyPlan>,
    /// A plan for which the tables could not be opened.
    waiting: Option<PolicyPlan>,
    written: BTreeMap<u64, Written>,
    /// What an earlier agent has left besides was removed; and whether the table of isolated addresses may still have entries of it.
    is_complete: bool,
    may_have_strangers: bool,
    trouble: Option<Arc<Trouble>>,
    /// Not all identities of the plan could be written.
    identities_failed: bool,
}

impl PolicyEnforcer {
    /// `node`: the cookie of this node's own namespace.
    pub fn new(settings: &Settings, node: u64) -> PolicyEnforcer {
        PolicyEnforcer {
            options: settings.options(node),
            arms: settings.arm,
            tables: None,
            plan: None,
            waiting: None,
            written: BTreeMap::new(),
            is_complete: false,
            may_have_strangers: true,
            trouble: None,
            identities_failed: false,
        }
    }

    /// Puts a plan into force, in these namespaces first. Policies come before identities, so that policies know every new
    /// identity. The first plan of a process writes identities first: no pod uses this process's generation yet.
    pub fn apply<'a>(
        &mut self,
        plan: PolicyPlan,
        subjects: impl Iterator<Item = Subject<'a>>,
    ) -> Vec<(u64, EnforceError)> {
        self.waiting = None;
        if self.tables.is_none() && self.is_needed(&plan) {
            match Tables::open(&self.options) {
                Ok(tables) => self.tables = Some(tables),
                Err(error) => {
                    self.waiting = Some(plan);
                    let trouble = self.note(Trouble::NotOpen(error));
                    return subjects.map(|subject| (subject.cookie, EnforceError::Node(trouble.clone()))).collect();
                }
            }
        }
        let is_first = self.plan.is_none();
        self.plan = Some(plan);
        self.trouble = None;
        if is_first {
            self.write_identities();
        }
        let failed = subjects.filter_map(|subject| Some((subject.cookie, self.enforce(&subject).err()?))).collect();
        if !is_first {
            self.write_identities();
        }
        self.remove_strangers();
        failed
    }

    /// Whether anything is used; if not, the tables are not even opened.
    fn is_needed(&self, plan: &PolicyPlan) -> bool {
        let is_asked = !plan.policies.pods.is_empty() || !plan.bypasses.is_empty() || !plan.required.is_empty();
        // If the tables cannot be read, opening them will report why.
        let is_wanted = is_asked || self.options.watch || self.arms;
        is_wanted || policy::has_left(&self.options.pins).unwrap_or(true) || self.was_armed().unwrap_or(true)
    }

    /// Whether an earlier agent has armed the node.
    fn was_armed(&self) -> Result<bool, Error> {
        Admission::open(&self.options.pins)?.is_armed()
    }

    /// An earlier agent's entries, once none of its policies is left.
    fn remove_strangers(&mut self) {
        let (Some(tables), Some(plan)) = (&mut self.tables, &self.plan) else { return };
        let is_due = self.is_complete && self.may_have_strangers && plan.unread.is_empty();
        if !is_due {
            return;
        }
        match tables.isolated.remove_strangers() {
            Ok(()) => self.may_have_strangers = false,
            Err(error) => drop(self.note(Trouble::Tables(error))),
        }
    }

    fn write_identities(&mut self) {
        let (Some(tables), Some(plan)) = (&mut self.tables, &self.plan) else { return };
        let written = tables.policies.write_identities(&plan.policies.identities);
        self.identities_failed = written.is_err();
        let used = if plan.is_whole { tables.use_identities(plan) } else { Ok(()) };
        if let Err(error) = written.and(used) {
            self.note(Trouble::Tables(error));
        }
    }

    /// Tries again what has failed before. Returns whether that was necessary.
    pub fn retry(&mut self) -> bool {
        let is_due = self.identities_failed;
        if is_due {
            self.trouble.take_if(|trouble| matches!(**trouble, Trouble::Tables(_)));
            self.write_identities();
        }
        is_due
    }

    /// The plan that is to be applied again, after the tables could not be opened.
    pub fn take_waiting(&mut self) -> Option<PolicyPlan> {
        self.waiting.take()
    }

    fn note(&mut self, trouble: Trouble) -> Arc<Trouble> {
        let trouble = Arc::new(trouble);
        self.trouble = Some(trouble.clone());
        trouble
    }

    /// The problem of the whole node, if there is one.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.as_deref().map(|trouble| chain(trouble).to_string())
    }

    /// Puts the pod's policies into force, before anything else changes in the namespace.
    pub fn enforce(&mut self, subject: &Subject) -> Result<(), EnforceError> {
        let (Some(tables), Some(plan)) = (&mut self.tables, &self.plan) else {
            return self.trouble.clone().map_or(Ok(()), |trouble| Err(EnforceError::Node(trouble)));
        };
        // A pod whose addresses cannot all be written is under its policies all the same.
        let known = tables.policies.know(subject.cookie, subject.addresses);
        tables.enforce(plan, subject, &mut self.written).and(known.map_err(EnforceError::from))
    }

    /// Whether this process has put the pod's policies into force.
    pub fn is_policed(&self, cookie: u64) -> bool {
        self.written.contains_key(&cookie)
    }

    pub fn remove(&mut self, cookie: u64) -> Result<(), Error> {
        self.written.remove(&cookie);
        let Some(tables) = &mut self.tables else { return Ok(()) };
        let dismissed = tables.admission.dismiss(cookie);
        dismissed.and(tables.policies.remove_pod(cookie)).and_then(|()| tables.isolated.remove(cookie))
    }

    /// Admits the namespace on an armed node: its rules are in force.
    pub fn admit(&self, cookie: u64) -> Result<(), Error> {
        self.tables.as_ref().map_or(Ok(()), |tables| tables.admission.admit(cookie))
    }

    /// Arms or disarms the node. All known namespaces must have been admitted before.
    pub fn arm(&mut self) {
        let Some(tables) = &self.tables else { return };
        let was_armed = tables.admission.is_armed().unwrap_or(false);
        if let Err(error) = tables.admission.arm(self.arms) {
            let trouble = if was_armed { Trouble::StillArmed(error) } else { Trouble::NotArmed(error) };
            self.note(trouble);
        } else if self.arms && !was_armed {
            tracing::info!("this node is armed: a network namespace that is not admitted may talk with nobody");
        } else if was_armed && !self.arms {
            tracing::warn!("this node is not armed any more: this agent runs without --arm, and an earlier one had it");
        }
    }

    /// Whether this namespace has policies, and has ended.
    pub fn has_ended(&self, cookie: u64) -> bool {
        self.tables.as_ref().is_some_and(|tables| tables.policies.has_ended(cookie))
    }

    /// How many namespaces are admitted. None: the node is not armed.
    pub fn admitted(&self) -> Option<usize> {
        let admission = &self.tables.as_ref()?.admission;
        admission.is_armed().unwrap_or(false).then(|| admission.count())
    }

    pub fn is_admitted(&self, cookie: u64) -> bool {
        self.tables.as_ref().is_some_and(|tables| tables.admission.is_admitted(cookie).unwrap_or(false))
    }

    /// Writes the bypasses. Nothing is written before all pods that require their proxy are known, nor while a file that may
    /// say so cannot be read. `unseen`: such pods may still be among those of an earlier agent.
    pub fn apply_bypasses(&mut self, subjects: &BTreeMap<u64, Name>, unseen: bool) {
        let (Some(tables), Some(plan)) = (&mut self.tables, &self.plan) else { return };
        if !plan.is_whole {
            return;
        }
        let required = subjects.iter().filter(|(_, pod)| plan.required.contains(*pod)).map(|(cookie, _)| *cookie);
        let mut required: BTreeSet<u64> = required.collect();
        if unseen {
            required.extend(tables.bypasses.required());
        }
        if let Err(error) = tables.bypasses.set(tables.permitted(plan), &required) {
            self.note(Trouble::Tables(error));
        }
    }

    /// Call when everything wanted has been done as far as possible: removes what an earlier agent has left besides. A pod whose
    /// policies could not be written, or could not all be read, keeps the earlier ones.
    pub fn complete(&mut self, subjects: &BTreeMap<u64, Name>, exempt: &BTreeSet<u64>) -> Result<(), Error> {
        self.is_complete = self.tables.is_none();
        let (Some(tables), Some(plan)) = (&mut self.tables, &self.plan) else { return Ok(()) };
        tables.admission.retain(&subjects.keys().chain(exempt).copied().collect())?;
        let is_wanted = |pod: &Name| plan.policies.pods.contains_key(pod) || plan.keeps_inherited(pod);
        let wanted = subjects.iter().filter(|(_, pod)| is_wanted(pod));
        tables.policies.complete_but(&wanted.map(|(cookie, _)| *cookie).collect())?;
        self.is_complete = true;
        self.remove_strangers();
        Ok(())
    }

    pub fn fill(&self) -> Vec<Fill> {
        self.tables.as_ref().map_or_else(Vec::new, Tables::fill)
    }

    /// Namespace (0: of no single one) and difference.
    pub fn differences(&self, strangers: bool) -> Result<Vec<(u64, String)>, Error> {
        self.tables.as_ref().map_or_else(|| Ok(Vec::new()), |tables| tables.differences(strangers))
    }

    pub fn count(&self) -> usize {
        self.written.len()
    }
}
