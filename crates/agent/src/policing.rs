//! Who may talk with whom, and whose proxies are led around: worked out of everything that is known, for the controller of
//! captured pods, which writes it, and for whoever asks.

use crate::captures::PolicyPlan;
use sidestep_ebpf::error::Result;
use sidestep_ebpf::policy;
use sidestep_mesh::bypass::{self, BypassFlags, Refusal};
use sidestep_mesh::object::{Bypass, Name};
use sidestep_mesh::plane::FrontendKey;
use sidestep_mesh::policy::identity::{FIRST, Identities};
use sidestep_mesh::policy::plan::{Plan, plan, requires_proxy};
use sidestep_mesh::policy::tables::Compiled;
use sidestep_mesh::reconcile::Reconciler;
use sidestep_mesh::state::State;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

pub struct Policing {
    pub identities: Identities,
    /// The lowest number of an identity that is ours, and no earlier agent's.
    pub first: u32,
    /// This node's own addresses, from which probes come.
    pub node: BTreeSet<IpAddr>,
    /// The plan that the controller has been given.
    pub plan: Arc<Plan>,
    bypasses: Arc<BTreeMap<FrontendKey, BypassFlags>>,
    /// Services that ask to be led around proxies in vain.
    pub refused: BTreeMap<Name, Refusal>,
    required: Arc<BTreeSet<Name>>,
    /// Namespaces with a NetworkPolicy that cannot be read, and whether the controller has been told of these.
    unread: Arc<BTreeSet<Arc<str>>>,
    is_unread_told: bool,
    /// Since the last plan.
    changed: Changed,
    /// What the last plan for the controller was made of.
    reported: Reported,
}

/// What has changed. A greater one includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Changed {
    Nothing,
    Services,
    /// Policies, pods or addresses.
    Policies,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reported {
    Nothing,
    /// Sources had not been read to their end.
    Parts,
    Everything,
}

impl Policing {
    /// Numbers that an earlier agent has given to others are not given again.
    pub fn new(pins: &Path) -> Result<Policing> {
        let last = policy::last_identity(pins)?;
        Ok(Policing {
            identities: Identities::after(last),
            first: last.saturating_add(1).max(FIRST),
            node: BTreeSet::new(),
            plan: Arc::default(),
            bypasses: Arc::default(),
            refused: BTreeMap::new(),
            required: Arc::default(),
            unread: Arc::default(),
            is_unread_told: true,
            changed: Changed::Policies,
            reported: Reported::Nothing,
        })
    }

    pub fn set_node(&mut self, addresses: BTreeSet<IpAddr>) {
        if addresses != self.node {
            self.note(Changed::Policies);
        }
        self.node = addresses;
    }

    /// Namespaces with a NetworkPolicy that cannot be read: pods there keep what an earlier agent enforced.
    pub fn set_unread(&mut self, namespaces: BTreeSet<Arc<str>>) {
        self.is_unread_told &= *self.unread == namespaces;
        self.unread = Arc::new(namespaces);
    }

    pub fn note(&mut self, changed: Changed) {
        self.changed = self.changed.max(changed);
    }

    /// Every source was read to its end at least once since the agent began.
    pub fn is_whole(&self) -> bool {
        self.reported == Reported::Everything
    }

    /// What the controller is to be given. None: nothing new. `is_whole`: everything has been read, and nothing is hidden.
    pub fn news(&mut self, state: &State, reconciler: &Reconciler, is_whole: bool) -> Option<PolicyPlan> {
        let changed = std::mem::replace(&mut self.changed, Changed::Nothing);
        let reported = self.reported.max(if is_whole { Reported::Everything } else { Reported::Parts });
        let is_unread_told = std::mem::replace(&mut self.is_unread_told, true);
        let mut is_news = reported != self.reported || !is_unread_told;
        self.reported = reported;
        if changed == Changed::Policies {
            is_news |= self.plan(state);
        }
        let is_bypassed = || state.services().any(|service| service.bypass != Bypass::Nobody);
        if changed != Changed::Nothing && (!self.bypasses.is_empty() || is_bypassed()) {
            is_news |= self.plan_bypasses(state, reconciler);
        }
        is_news.then(|| PolicyPlan {
            policies: Arc::clone(&self.plan),
            bypasses: Arc::clone(&self.bypasses),
            required: Arc::clone(&self.required),
            is_whole: self.is_whole(),
            unread: Arc::clone(&self.unread),
        })
    }

    fn plan(&mut self, state: &State) -> bool {
        // Rules go on to know those who have just gone, as long as the tables may.
        let used = self.plan.identities.values().map(|known| known.identity).collect();
        self.identities.keep(&used);
        let mut plan = plan(state, &mut self.identities, &self.node, |pod| pod.netns.is_some());
        keep_equal(&self.plan, &mut plan);
        let pods = state.pods();
        let here = pods.values().filter(|pod| pod.netns.is_some() && requires_proxy(state, pod));
        let required = here.map(|pod| pod.name.clone()).collect();
        let is_news = plan != *self.plan || required != *self.required;
        (self.plan, self.required) = (Arc::new(plan), Arc::new(required));
        is_news
    }

    fn plan_bypasses(&mut self, state: &State, reconciler: &Reconciler) -> bool {
        let owns = |key: &FrontendKey, name: &Name| reconciler.owner(key).is_some_and(|owner| owner.service == *name);
        let bypass::Plan { bypasses, refused } = bypass::plan(state, reconciler.node(), owns);
        let is_news = bypasses != *self.bypasses;
        (self.bypasses, self.refused) = (Arc::new(bypasses), refused);
        is_news
    }

    /// Where connections are meant to be led around proxies.
    pub fn flags(&self, key: &FrontendKey) -> BypassFlags {
        self.bypasses.get(key).copied().unwrap_or_default()
    }

    pub fn requires_proxy(&self, pod: &Name) -> bool {
        self.required.contains(pod)
    }
}

/// What means the same stays the same: pods are compared by it.
fn keep_equal(before: &Plan, now: &mut Plan) {
    let mut equal: HashMap<[*const Compiled; 2], bool> = HashMap::new();
    for (name, planned) in &mut now.pods {
        let Some(old) = before.pods.get(name) else { continue };
        let (one, other) = (&old.compiled, &planned.compiled);
        let both = [Arc::as_ptr(one), Arc::as_ptr(other)];
        if *equal.entry(both).or_insert_with(|| one == other) {
            planned.compiled = Arc::clone(one);
        }
    }
}
