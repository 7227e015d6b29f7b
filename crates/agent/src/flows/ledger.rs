//! Counters by name that never decrease: counts that the kernel half has forgotten are kept here.

use super::names::{Names, other};
use sidestep_agent_api::{Counted, Flows, Pair, ServiceFlows, Workload};
use sidestep_ebpf::watch::{self, Between, Side};
use sidestep_mesh::object::Name;
use std::collections::{BTreeMap, BTreeSet};

/// How many pairs of workloads are counted separately, in the order in which they appear; the others are one pair.
const MOST_PAIRS: usize = 1000;
/// Numbers whose workloads are remembered. A number is used up by each change of labels, so some of those that have gone are forgotten.
const MOST_KNOWN: usize = 65_536;

type Two = (Workload, Workload, Side);

#[derive(Default)]
pub struct Ledger {
    names: Names,
    /// Numbers seen, and their workloads: numbers rise, and none is reused.
    known: BTreeMap<u32, Workload>,
    told: BTreeSet<Two>,
    /// Counts of forgotten entries.
    pairs: BTreeMap<Two, watch::Counted>,
    services: BTreeMap<(Name, Side), watch::Counted>,
    /// The same, with the present counts of the kernel half added.
    all_pairs: BTreeMap<Two, watch::Counted>,
    all_services: BTreeMap<(Name, Side), watch::Counted>,
}

impl Ledger {
    /// Takes in what was read, and the present names. Returns what the kernel half should forget: entries of names that are gone.
    pub fn update(&mut self, found: &[(Between, watch::Counted)], names: Names) -> BTreeSet<Between> {
        let before = std::mem::replace(&mut self.names, names);
        (self.all_pairs, self.all_services) = (self.pairs.clone(), self.services.clone());
        let mut gone = BTreeSet::new();
        for (between, counted) in found {
            // A number that is now another Service's was the old one's until a moment ago.
            let service = before.service(between.service).or(self.names.service(between.service)).cloned();
            let is_same = between.service == 0 || self.names.service(between.service) == service.as_ref();
            let have_gone = [between.client, between.server].iter().any(|one| self.names.identity(*one).is_none());
            let two = self.two(between);
            let is_gone = !is_same || have_gone;
            *self.all_pairs.entry(two.clone()).or_default() += *counted;
            let its = service.filter(|_| between.service != 0).map(|name| (name, between.side));
            if let Some(its) = &its {
                *self.all_services.entry(its.clone()).or_default() += *counted;
            }
            if is_gone {
                gone.insert(*between);
                *self.pairs.entry(two).or_default() += *counted;
                its.into_iter().for_each(|its| *self.services.entry(its).or_default() += *counted);
            }
        }
        let there = self.names.services();
        self.services.retain(|(name, _), _| there.contains(name));
        self.all_services.retain(|(name, _), _| there.contains(name));
        self.forget_oldest();
        gone
    }

    /// Of those that have gone. The kernel half still counts by the other numbers.
    fn forget_oldest(&mut self) {
        let too_many = self.known.len().saturating_sub(MOST_KNOWN);
        let gone = self.known.keys().filter(|number| self.names.identity(**number).is_none());
        for number in gone.take(too_many).copied().collect::<Vec<_>>() {
            self.known.remove(&number);
        }
    }

    fn two(&mut self, between: &Between) -> Two {
        let two = (self.workload(between.client), self.workload(between.server), between.side);
        if self.told.contains(&two) || self.told.len() < MOST_PAIRS {
            self.told.insert(two.clone());
            return two;
        }
        (other(), other(), between.side)
    }

    fn workload(&mut self, number: u32) -> Workload {
        if let Some(known) = self.names.identity(number) {
            self.known.insert(number, known.clone());
            return known;
        }
        self.known.get(&number).cloned().unwrap_or_else(other)
    }

    pub fn counts(&self) -> Flows {
        let pairs = self.all_pairs.iter().map(|((client, server, side), counted)| Pair {
            client: client.clone(),
            server: server.clone(),
            side: side_name(*side).into(),
            counted: told(counted),
        });
        let services = self.all_services.iter().map(|((name, side), counted)| ServiceFlows {
            namespace: name.namespace.to_string(),
            service: name.name.to_string(),
            side: side_name(*side).into(),
            counted: told(counted),
        });
        Flows { pairs: pairs.collect(), services: services.collect() }
    }
}

fn side_name(of: Side) -> &'static str {
    match of {
        Side::Client => "client",
        Side::Server => "server",
    }
}

fn told(of: &watch::Counted) -> Counted {
    let failures =
        [("refused", of.refused), ("reset", of.reset), ("timed-out", of.timed_out), ("other", of.failed_otherwise)];
    Counted {
        attempts: of.attempts,
        connections: of.connections,
        closed: of.closed,
        sent: of.sent,
        received: of.received,
        failures: failures.map(|(kind, count)| (kind.to_string(), count)).into(),
        latencies: of.latencies.into(),
        rtt_us: of.rtt_us,
        rtts: of.rtts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(connections: u64) -> watch::Counted {
        watch::Counted { connections, ..watch::Counted::default() }
    }

    fn between(client: u32, service: u32) -> Between {
        Between { client, server: 1, service, side: Side::Client }
    }

    fn sums(ledger: &Ledger) -> (Vec<u64>, Vec<u64>) {
        let Flows { pairs, services } = ledger.counts();
        (
            pairs.iter().map(|pair| pair.counted.connections).collect(),
            services.iter().map(|one| one.counted.connections).collect(),
        )
    }

    #[test]
    fn counts_of_those_who_have_gone_stay() {
        let mut ledger = Ledger::default();
        let web = Name::new("shop", "web");
        let names = Names::of(&[(16, "a"), (17, "b")], &[(3, web.clone())]);
        let found = [(between(16, 3), counted(5)), (between(17, 3), counted(7))];
        assert!(ledger.update(&found, names).is_empty());
        assert_eq!(sums(&ledger), (vec![5, 7], vec![12]));
        // An identity goes: the kernel half may forget its entries, and no sum decreases.
        let names = Names::of(&[(17, "b")], &[(3, web)]);
        assert_eq!(ledger.update(&found, names.clone()), BTreeSet::from([between(16, 3)]));
        assert_eq!(sums(&ledger), (vec![5, 7], vec![12]));
        assert!(ledger.update(&found[1..], names).is_empty());
        assert_eq!(sums(&ledger), (vec![5, 7], vec![12]));
        // The number now is another Service's.
        let other = Names::of(&[(17, "b")], &[(3, Name::new("shop", "db"))]);
        assert_eq!(ledger.update(&found[1..], other.clone()), BTreeSet::from([between(17, 3)]));
        assert_eq!(sums(&ledger), (vec![5, 7], vec![]));
        assert!(ledger.update(&[(between(17, 3), counted(1))], other).is_empty());
        assert_eq!(sums(&ledger), (vec![5, 8], vec![1]));
    }

    /// The sum of one that stays does not decrease when it goes at last.
    #[test]
    fn only_so_many_of_those_who_have_gone_are_remembered() {
        let mut ledger = Ledger::default();
        let lasting = (between(16, 0), counted(5));
        for number in 17..100_017 {
            let found = [lasting, (between(number, 0), counted(1))];
            ledger.update(&found, Names::of(&[(16, "lasting"), (number, "short")], &[]));
            assert!(ledger.known.len() <= MOST_KNOWN);
        }
        ledger.update(&[lasting], Names::default());
        let pairs = ledger.counts().pairs;
        let its = pairs.iter().find(|pair| pair.client.workload == "lasting").unwrap();
        assert_eq!(its.counted.connections, 5);
    }

    #[test]
    fn beyond_the_most_pairs_all_are_one() {
        let mut ledger = Ledger::default();
        let many: Vec<(u32, String)> = (16..16 + 2000).map(|number| (number, number.to_string())).collect();
        let named: Vec<(u32, &str)> = many.iter().map(|(number, name)| (*number, name.as_str())).collect();
        let found: Vec<_> = many.iter().map(|(number, _)| (between(*number, 0), counted(1))).collect();
        ledger.update(&found, Names::of(&named, &[]));
        let pairs = ledger.counts().pairs;
        assert_eq!(pairs.len(), MOST_PAIRS + 1);
        let others = pairs.iter().find(|pair| pair.client == other()).unwrap();
        assert_eq!(others.counted.connections, 1000);
    }
}
