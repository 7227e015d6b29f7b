//! Which Service owns a frontend. Two Services may claim the same address and port: the one that has it as its cluster IP owns
//! it, else the older one, until that is deleted.

use crate::object::Name;
use crate::plane::{FrontendKey, Scope};
use crate::table::PortKey;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A Service's claim to a frontend. The smallest claim wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The cluster assigns cluster IPs, but any Service may name any external address, so those come last.
    pub is_external: bool,
    /// Creation time of the Service, RFC 3339.
    pub created: Arc<str>,
    /// The port that claims; it decides between claims of the same age.
    pub key: Arc<PortKey>,
}

/// All claims, by frontend and by Service.
#[derive(Debug, Default)]
pub struct Claims {
    of_frontend: HashMap<FrontendKey, BTreeSet<Claim>>,
    of_service: HashMap<Name, BTreeMap<FrontendKey, BTreeSet<Claim>>>,
}

/// What a change of claims means for other Services.
#[derive(Debug, Default)]
pub struct Moved {
    /// Services that have gained or lost a frontend.
    pub others: BTreeSet<Name>,
    /// Frontends that no Service claims any more.
    pub unclaimed: Vec<FrontendKey>,
}

impl Claims {
    /// Replaces the claims of this Service.
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
            moved.others.extend(self.of_packets(&frontend).map(|claim| claim.key.service.clone()));
        }
        if owner.is_none() {
            self.of_frontend.remove(&frontend);
            moved.unclaimed.push(frontend);
        }
    }

    /// The owner of the frontend. One for packets to a cluster IP belongs to the Service that has the cluster IP, though that has no
    /// such frontend: packets would find another Service's before its own.
    pub fn owner(&self, frontend: &FrontendKey) -> Option<&Arc<PortKey>> {
        let first = self.first(frontend)?;
        Some(&self.given(frontend).unwrap_or(first).key)
    }

    /// Whether no other port has a better claim to this very frontend: if the port is not the owner, nobody else programs it.
    pub fn is_first(&self, frontend: &FrontendKey, port: &PortKey) -> bool {
        self.first(frontend).is_some_and(|claim| *claim.key == *port)
    }

    fn first(&self, frontend: &FrontendKey) -> Option<&Claim> {
        self.of_frontend.get(frontend)?.first()
    }

    /// For a frontend for packets to one address: the claim of the Service whose cluster IP that is.
    fn given(&self, frontend: &FrontendKey) -> Option<&Claim> {
        let is_at_address = OF_PACKETS.contains(&frontend.scope);
        let dialled = FrontendKey { scope: Scope::Address, ..*frontend };
        is_at_address.then(|| self.first(&dialled)).flatten().filter(|claim| !claim.is_external)
    }

    /// The best claims to the same address and port for packets, if the frontend is for sockets. No other one has a frontend.
    fn of_packets(&self, frontend: &FrontendKey) -> impl Iterator<Item = &Claim> {
        let scopes: &[Scope] = if frontend.scope == Scope::Address { &OF_PACKETS } else { &[] };
        scopes.iter().filter_map(move |scope| self.first(&FrontendKey { scope: *scope, ..*frontend }))
    }

    /// How many frontends there are.
    pub fn len(&self) -> usize {
        self.of_frontend.len()
    }
}

/// The scopes of packets to one address.
const OF_PACKETS: [Scope; 2] = [Scope::External, Scope::Pod];
