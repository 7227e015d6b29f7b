//! The tables of policies and bypasses.

use super::PolicyPlan;
use super::trouble::EnforceError;
use sidestep_agent_api::Fill;
use sidestep_ebpf::admission::Admission;
use sidestep_ebpf::bypass::Bypasses;
use sidestep_ebpf::error::Error;
use sidestep_ebpf::isolated::Isolated;
use sidestep_ebpf::packets;
use sidestep_ebpf::policy::{Addresses, Policies};
use sidestep_ebpf::services::Options;
use sidestep_mesh::address::Address;
use sidestep_mesh::bypass::BypassFlags;
use sidestep_mesh::object::Name;
use sidestep_mesh::plane::FrontendKey;
use sidestep_mesh::policy::plan::Planned;
use sidestep_mesh::policy::tables::Compiled;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

pub struct Tables {
    pub policies: Policies,
    pub isolated: Isolated,
    pub bypasses: Bypasses,
    pub admission: Admission,
}

/// The policies and addresses that were written for a namespace.
pub type Written = (Arc<Compiled>, Addresses);

/// A namespace whose pod may have policies.
pub struct Subject<'a> {
    pub cookie: u64,
    pub pod: &'a Name,
    /// A file that certainly is the namespace. None: the programs are attached there, or it will be visited before.
    pub held: Option<&'a Path>,
    pub addresses: &'a Addresses,
    /// The addresses that the pod was given. Other than those of its interfaces, the pod cannot change them.
    pub given: &'a [IpAddr],
}

static NO_BYPASSES: BTreeMap<FrontendKey, BypassFlags> = BTreeMap::new();
/// A path for a namespace without a file.
const NOWHERE: &str = "";

impl Tables {
    pub fn open(options: &Options) -> Result<Tables, Error> {
        packets::install(options)?;
        let pins = &options.pins;
        Ok(Tables {
            policies: Policies::open(pins)?,
            isolated: Isolated::open(pins)?,
            bypasses: Bypasses::open(pins)?,
            admission: Admission::open(pins)?,
        })
    }

    /// Puts the pod's policies into force. `all_written`: of every namespace.
    pub fn enforce(
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
        let planned = plan.policies.pods.get(subject.pod);
        if is_inherited && plan.keeps_inherited(subject.pod) {
            self.isolated.put(cookie, addresses_of(subject, planned))?;
            return Err(EnforceError::Inherited);
        }
        let Some(planned) = planned else {
            let is_policed = is_inherited || all_written.remove(&cookie).is_some();
            return if is_policed { self.remove(cookie) } else { Ok(()) };
        };
        let judges_clients = planned.compiled.defaults.ingress != 0;
        // Without room policies are in force all the same.
        let isolated =
            if judges_clients { self.isolated.put(cookie, addresses_of(subject, Some(planned))) } else { Ok(()) };
        let is_same = |(compiled, addresses): &Written| {
            (Arc::ptr_eq(compiled, &planned.compiled) || *compiled == planned.compiled)
                && addresses == subject.addresses
        };
        if all_written.get(&cookie).is_some_and(is_same) {
            return Ok(isolated?);
        }
        let held = subject.held.unwrap_or(Path::new(NOWHERE));
        let put = self.policies.put(held, cookie, &subject.pod.namespace, subject.addresses, &planned.compiled);
        put.map_err(EnforceError::Policies)?;
        all_written.insert(cookie, (Arc::clone(&planned.compiled), subject.addresses.clone()));
        Ok(if judges_clients { isolated } else { self.isolated.remove(cookie) }?)
    }

    fn remove(&mut self, cookie: u64) -> Result<(), EnforceError> {
        self.policies.remove(cookie)?;
        Ok(self.isolated.remove(cookie)?)
    }

    /// Programs see the identities of this process. Before that no connection is led around proxies any more, if clients that
    /// require theirs could not be written.
    pub fn use_identities(&mut self, plan: &PolicyPlan) -> Result<(), Error> {
        if !self.policies.knows_who_requires_its_proxy(&plan.policies.identities) {
            let required = self.bypasses.required();
            self.bypasses.set(&NO_BYPASSES, &required)?;
        }
        self.policies.use_identities()
    }

    /// The plan's bypasses; none, as long as clients that require their proxy are not known.
    pub fn permitted<'a>(&self, plan: &'a PolicyPlan) -> &'a BTreeMap<FrontendKey, BypassFlags> {
        let is_known = self.policies.knows_who_requires_its_proxy(&plan.policies.identities);
        if is_known { &plan.bypasses } else { &NO_BYPASSES }
    }

    pub fn fill(&self) -> Vec<Fill> {
        let all = self.policies.fill().into_iter().chain(self.bypasses.fill()).chain([self.isolated.fill()]);
        all.map(|fill| Fill { table: fill.table.into(), used: fill.used as u32, size: fill.room }).collect()
    }

    /// Namespace (0: of no single one) and difference.
    pub fn differences(&self, strangers: bool) -> Result<Vec<(u64, String)>, Error> {
        let enforced =
            self.policies.differences(strangers)?.into_iter().map(|(cookie, what)| (cookie, what.to_string()));
        let bypasses = self.bypasses.differences()?.into_iter();
        let bypasses =
            bypasses.map(|key| (0, format!("{key}: the tables lead it around proxies otherwise than was written")));
        let [missing, others] = self.isolated.differences()?;
        let missing =
            missing.into_iter().map(|at| format!("{at}: packets lose their source, and a policy is about it"));
        let others = others.into_iter().filter(|_| strangers);
        let others = others.map(|at| format!("{at}: packets keep their source, and no policy is about it"));
        let isolated = missing.chain(others).map(|what| (0, what));
        Ok(enforced.chain(bypasses).chain(isolated).collect())
    }
}

/// What clients can reach the pod by.
fn addresses_of(subject: &Subject, planned: Option<&Planned>) -> BTreeSet<Address> {
    let known = planned.into_iter().flat_map(|planned| &planned.pod.addresses);
    known.chain(subject.given).map(|ip| (*ip).into()).collect()
}
