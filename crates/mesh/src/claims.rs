//! Who has which frontend. Two Services may want the same address and port: the one whose address in the cluster it is
//! has it, and else the older one, until it goes.

use crate::object::Name;
use crate::plane::FrontendKey;
use crate::table::PortKey;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A wish, in the order in which wishes are granted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// An address in the cluster is given by the cluster; any Service may name another one as its external address.
    pub is_external: bool,
    /// Creation time of the Service, RFC 3339.
    pub created: Arc<str>,
    pub key: Arc<PortKey>,
}

#[derive(Debug, Default)]
pub struct Claims {
    of_frontend: HashMap<FrontendKey, BTreeSet<Claim>>,
    of_service: HashMap<Name, BTreeMap<FrontendKey, BTreeSet<Claim>>>,
}

/// What a change of claims means for others.
#[derive(Debug, Default)]
pub struct Moved {
    /// Services that have won or lost a frontend thereby.
    pub others: BTreeSet<Name>,
    /// Frontends that nobody wants any more.
    pub unclaimed: Vec<FrontendKey>,
}

impl Claims {
    /// From now on these are the wishes of this Service.
    pub fn replace(&mut self, service: &Name, wishes: impl IntoIterator<Item = (FrontendKey, Claim)>) -> Moved {
        let mut wanted: BTreeMap<FrontendKey, BTreeSet<Claim>> = BTreeMap::new();
        for (frontend, claim) in wishes {
            wanted.entry(frontend).or_default().insert(claim);
        }
        let before = self.of_service.remove(service).unwrap_or_default();
        let touched: BTreeSet<FrontendKey> = before.keys().chain(wanted.keys()).copied().collect();
        let none = BTreeSet::new();
        let mut moved = Moved::default();
        for frontend in touched {
            let (old, new) = (before.get(&frontend).unwrap_or(&none), wanted.get(&frontend).unwrap_or(&none));
            if old != new {
                self.exchange(frontend, old, new, &mut moved);
            }
        }
        moved.others.remove(service);
        if !wanted.is_empty() {
            self.of_service.insert(service.clone(), wanted);
        }
        moved
    }

    fn exchange(&mut self, frontend: FrontendKey, old: &BTreeSet<Claim>, new: &BTreeSet<Claim>, moved: &mut Moved) {
        let claims = self.of_frontend.entry(frontend).or_default();
        let owner_before = claims.first().cloned();
        claims.retain(|claim| !old.contains(claim));
        claims.extend(new.iter().cloned());
        let owner = claims.first().cloned();
        if owner != owner_before {
            moved.others.extend([owner_before, owner.clone()].into_iter().flatten().map(|c| c.key.service.clone()));
        }
        if owner.is_none() {
            self.of_frontend.remove(&frontend);
            moved.unclaimed.push(frontend);
        }
    }

    /// Who has the frontend.
    pub fn owner(&self, frontend: &FrontendKey) -> Option<&Arc<PortKey>> {
        Some(&self.of_frontend.get(frontend)?.first()?.key)
    }

    /// How many frontends there are.
    pub fn len(&self) -> usize {
        self.of_frontend.len()
    }

    pub fn is_empty(&self) -> bool {
        self.of_frontend.is_empty()
    }
}
