//! Writes the tables of policies and bypasses for the namespaces that are visited.
//!
//! Policies and captures share a thread, since both use the same program in a namespace: it is removed when neither needs it.

use super::PolicyPlan;
use crate::settings::Settings;
use sidestep_agent_api::Fill;
use sidestep_ebpf::admission::Admission;
use sidestep_ebpf::bypass::Bypasses;
use sidestep_ebpf::error::Error;
use sidestep_ebpf::packets;
use sidestep_ebpf::policy::{self, Addresses, Policies};
use sidestep_ebpf::services::Options;
use sidestep_error::chain;
use sidestep_mesh::bypass::BypassFlags;
use sidestep_mesh::object::Name;
use sidestep_mesh::plane::FrontendKey;
use sidestep_mesh::policy::tables::Compiled;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

pub struct PolicyEnforcer {
    options: Options,
    arms: bool,
    tables: Option<Tables>,
    plan: Option<PolicyPlan>,
    /// A plan for which the tables could not be opened.
    waiting: Option<PolicyPlan>,
    written: BTreeMap<u64, Written>,
    trouble: Option<Arc<Trouble>>,
    /// Not all identities of the plan could be written.
    identities_failed: bool,
}

/// The policies and addresses that were written for a namespace.
type Written = (Arc<Compiled>, Addresses);

/// A problem of the whole node: of identities, bypasses or admission.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("policies cannot be enforced")]
    NotOpen(#[source] Error),
    #[error("this node is still armed")]
    StillArmed(#[source] Error),
    #[error("this node is not armed")]
    NotArmed(#[source] Error),
    #[error(transparent)]
    Tables(Error),
}

/// Why a pod's policies are not in force.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// The problem of the whole node.
    #[error(transparent)]
    Node(Arc<Trouble>),
    #[error(transparent)]
    Tables(#[from] Error),
    #[error("policies are as an earlier agent left them, since not every policy can be read")]
    Inherited,
    #[error("policies")]
    Policies(#[source] Error),
}

impl EnforceError {
    /// See [`Error::known_as`].
    pub fn known_as(self, held: &Path, name: &Path) -> EnforceError {
        match self {
            EnforceError::Tables(error) => EnforceError::Tables(error.known_as(held, name)),
            EnforceError::Policies(error) => EnforceError::Policies(error.known_as(held, name)),
            other => other,
        }
    }
}

struct Tables {
    policies: Policies,
    bypasses: Bypasses,
    admission: Admission,
}

/// A namespace whose pod may have policies.
pub struct Subject<'a> {
    pub cookie: u64,
    pub pod: &'a Name,
    /// A file that certainly is the namespace. None: the programs are attached there, or it will be visited before.
    pub held: Option<&'a Path>,
    pub addresses: &'a Addresses,
}

static NO_BYPASSES: BTreeMap<FrontendKey, BypassFlags> = BTreeMap::new();
/// A path for a namespace without a file.
const NOWHERE: &str = "";

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
        tables.admission.dismiss(cookie).and(tables.policies.remove_pod(cookie))
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
        let (Some(tables), Some(plan)) = (&mut self.tables, &self.plan) else { return Ok(()) };
        tables.admission.retain(&subjects.keys().chain(exempt).copied().collect())?;
        let is_wanted = |pod: &Name| plan.policies.pods.contains_key(pod) || plan.keeps_inherited(pod);
        let wanted = subjects.iter().filter(|(_, pod)| is_wanted(pod));
        tables.policies.complete_but(&wanted.map(|(cookie, _)| *cookie).collect())
    }

    pub fn fill(&self) -> Vec<Fill> {
        let Some(Tables { policies, bypasses, .. }) = &self.tables else { return Vec::new() };
        let all = policies.fill().into_iter().chain(bypasses.fill());
        all.map(|fill| Fill { table: fill.table.into(), used: fill.used as u32, size: fill.room }).collect()
    }

    /// Namespace (0: of no single one) and difference.
    pub fn differences(&self, strangers: bool) -> Result<Vec<(u64, String)>, Error> {
        let Some(Tables { policies, bypasses, .. }) = &self.tables else { return Ok(Vec::new()) };
        let enforced = policies.differences(strangers)?.into_iter().map(|(cookie, what)| (cookie, what.to_string()));
        let bypasses = bypasses.differences()?.into_iter();
        let bypasses =
            bypasses.map(|key| (0, format!("{key}: the tables lead it around proxies otherwise than was written")));
        Ok(enforced.chain(bypasses).collect())
    }

    pub fn count(&self) -> usize {
        self.written.len()
    }
}

impl Tables {
    fn open(options: &Options) -> Result<Tables, Error> {
        packets::install(options)?;
        let pins = &options.pins;
        Ok(Tables {
            policies: Policies::open(pins)?,
            bypasses: Bypasses::open(pins)?,
            admission: Admission::open(pins)?,
        })
    }

    /// Puts the pod's policies into force. `all_written`: of every namespace.
    fn enforce(
        &mut self,
        plan: &PolicyPlan,
        subject: &Subject,
        all_written: &mut BTreeMap<u64, Written>,
    ) -> Result<(), EnforceError> {
        let cookie = subject.cookie;
        if plan.required.contains(subject.pod) {
            self.bypasses.require(cookie)?;
        }
        let is_inherited = !all_written.contains_key(&cookie) && self.policies.is_policed(cookie)?;
        if is_inherited && plan.keeps_inherited(subject.pod) {
            return Err(EnforceError::Inherited);
        }
        let Some(planned) = plan.policies.pods.get(subject.pod) else {
            let is_policed = is_inherited || all_written.remove(&cookie).is_some();
            return if is_policed { Ok(self.policies.remove(cookie)?) } else { Ok(()) };
        };
        let is_same = |(compiled, addresses): &Written| {
            (Arc::ptr_eq(compiled, &planned.compiled) || *compiled == planned.compiled)
                && addresses == subject.addresses
        };
        if all_written.get(&cookie).is_some_and(is_same) {
            return Ok(());
        }
        let held = subject.held.unwrap_or(Path::new(NOWHERE));
        let put = self.policies.put(held, cookie, &subject.pod.namespace, subject.addresses, &planned.compiled);
        put.map_err(EnforceError::Policies)?;
        all_written.insert(cookie, (Arc::clone(&planned.compiled), subject.addresses.clone()));
        Ok(())
    }

    /// Programs see the identities of this process. Before that no connection is led around proxies any more, if clients that
    /// require theirs could not be written.
    fn use_identities(&mut self, plan: &PolicyPlan) -> Result<(), Error> {
        if !self.policies.knows_who_requires_its_proxy(&plan.policies.identities) {
            let required = self.bypasses.required();
            self.bypasses.set(&NO_BYPASSES, &required)?;
        }
        self.policies.use_identities()
    }

    /// The plan's bypasses; none, as long as clients that require their proxy are not known.
    fn permitted<'a>(&self, plan: &'a PolicyPlan) -> &'a BTreeMap<FrontendKey, BypassFlags> {
        let is_known = self.policies.knows_who_requires_its_proxy(&plan.policies.identities);
        if is_known { &plan.bypasses } else { &NO_BYPASSES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_told_why_the_whole_node_enforces_nothing() {
        let denied = || Error::new("open the tables", std::io::Error::from_raw_os_error(13));
        let error = EnforceError::Node(Arc::new(Trouble::NotOpen(denied())));
        let expected = "policies cannot be enforced: open the tables: Permission denied (os error 13)";
        assert_eq!(chain(&error).to_string(), expected);
    }

    #[test]
    fn policies_that_are_not_written_say_at_which_namespace() {
        let (held, name) = (Path::new("/proc/self/fd/7"), Path::new("/run/netns/web"));
        let refused = Error::at("attach the inbound program to", held, std::io::Error::from_raw_os_error(1));
        let error = EnforceError::Policies(refused).known_as(held, name);
        let expected = "policies: attach the inbound program to /run/netns/web: Operation not permitted (os error 1)";
        assert_eq!(chain(&error).to_string(), expected);
    }
}
