//! Policies into table entries. What is worked out is counted: see [`super::budget`].

use super::budget::{Budget, TooMuch};
use super::fold::{Ranges, fold_all};
use super::identity::{self, Identities, Identity};
use super::rules::{Action, Direction, Labels, NamedPorts, Namespaces, OnDeny, Peer, Pods, Policy, Ports, Rule};
use super::selector::depth;
use super::tables::{
    Compiled, DRY_ALLOW, DRY_DENY, DRY_NAMES_DENIED, Entries, Gate, HAS_RANGES, ISOLATED, NAMES_DENIED, ROOM, RuleKey,
    SAYS_ALLOW, SAYS_DENY, SAYS_DROP,
};
use crate::address::Protocol;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ptr;
use std::rc::Rc;

/// Compiles the policies of one Kubernetes namespace for all kinds of its pods, within one budget.
#[derive(Debug)]
pub struct Compiler<'a> {
    known: &'a Identities,
    budget: Budget,
    /// They are the same for all pods that the rule's policy selects.
    peers: HashMap<*const Rule, Rc<Peers>>,
}

/// The identities that a rule names. Ranges are not among them.
#[derive(Debug, Default)]
struct Peers {
    numbers: BTreeSet<u32>,
    /// Outbound: these identities, with the numbers that the rule's named ports have there.
    dialled: Vec<(Gate, u32)>,
}

impl<'a> Compiler<'a> {
    /// For the identities that are known.
    pub fn new(known: &'a Identities) -> Compiler<'a> {
        Compiler { known, budget: Budget::default(), peers: HashMap::new() }
    }

    /// Those of the policies that select pods with these labels.
    pub(super) fn selecting(&mut self, policies: &[&'a Policy], labels: &Labels) -> Result<Vec<&'a Policy>, TooMuch> {
        let mut selecting = Vec::new();
        for policy in policies.iter().copied() {
            self.budget.look(policy.select.cost().saturating_mul(depth(labels.len())))?;
            if policy.select.matches(labels) {
                selecting.push(policy);
            }
        }
        Ok(selecting)
    }

    /// Compiles the policies that select a pod. `own_ports`: of that pod.
    pub fn compile(&mut self, policies: &[&'a Policy], own_ports: &NamedPorts) -> Compiled {
        let entries = match self.entries(policies, own_ports) {
            Ok(entries) => entries,
            Err(why) => return refused(policies, why),
        };
        let mut compiled = Compiled { entries, ..without_entries(policies) };
        for direction in Direction::BOTH {
            if compiled.entries.ranges.keys().any(|(gate, _)| gate.direction == direction) {
                *compiled.defaults.at_mut(direction) |= u16::from(HAS_RANGES);
            }
        }
        compiled
    }

    fn entries(&mut self, policies: &[&'a Policy], own_ports: &NamedPorts) -> Result<Entries, TooMuch> {
        let mut rules = BTreeMap::<RuleKey, u8>::new();
        let mut ranges = Ranges::new();
        for direction in Direction::BOTH {
            for policy in policies.iter().copied().filter(|policy| policy.concerns(direction)) {
                for rule in policy.rules.at(direction) {
                    let said = said(rule.action, policy);
                    self.budget.look(1 + rule.peers.len() + rule.ports.len() + rule.named.len())?;
                    let peers = self.peers(rule, direction)?;
                    let its = rule.peers.iter().filter(|peer| matches!(peer, Peer::Range { .. })).collect::<Vec<_>>();
                    let count = most_gates(rule).saturating_mul(peers.numbers.len() + its.len());
                    self.budget.expand(count.saturating_add(peers.dialled.len()))?;
                    for &(gate, identity) in &peers.dialled {
                        *rules.entry(RuleKey { gate, identity }).or_default() |= said;
                    }
                    for gate in gates(rule, direction, own_ports) {
                        for &identity in &peers.numbers {
                            *rules.entry(RuleKey { gate, identity }).or_default() |= said;
                        }
                        ranges.entry(gate).or_default().extend(its.iter().map(|peer| (*peer, said)));
                    }
                }
            }
        }
        if rules.len() > ROOM {
            return Err(TooMuch::Entries("policy_rules"));
        }
        Ok(Entries { rules, ranges: fold_all(&ranges, &mut self.budget)?, too_much: None })
    }

    fn peers(&mut self, rule: &'a Rule, direction: Direction) -> Result<Rc<Peers>, TooMuch> {
        if let Some(found) = self.peers.get(&ptr::from_ref(rule)) {
            return Ok(Rc::clone(found));
        }
        let mut peers = Peers::default();
        if rule.peers.is_empty() {
            peers.numbers.insert(identity::UNKNOWN);
        }
        for peer in &rule.peers {
            match peer {
                Peer::Pods(pods) => self.find(pods, &mut peers.numbers)?,
                Peer::Node => _ = peers.numbers.insert(identity::NODE),
                Peer::Range { .. } => {}
            }
        }
        if direction == Direction::Egress && !rule.named.is_empty() {
            peers.dialled = self.dialled_by_name(rule, &peers.numbers)?;
        }
        let peers = Rc::new(peers);
        self.peers.insert(ptr::from_ref(rule), Rc::clone(&peers));
        Ok(peers)
    }

    /// Adds the numbers of all identities that are among these pods.
    fn find(&mut self, pods: &Pods, numbers: &mut BTreeSet<u32>) -> Result<(), TooMuch> {
        let budget = &mut self.budget;
        let by_labels = pods.labels.cost();
        let by_namespace = match &pods.namespaces {
            Namespaces::Selected(selector) => selector.cost(),
            Namespaces::Any | Namespaces::Named(_) => 0,
        };
        let mut look = |(who, number): (&Identity, u32)| -> Result<(), TooMuch> {
            budget.look(by_namespace.saturating_mul(depth(who.namespace_labels.len())))?;
            if !who.is_in(&pods.namespaces) {
                return Ok(());
            }
            budget.look(by_labels.saturating_mul(depth(who.labels.len())))?;
            if pods.labels.matches(&who.labels) {
                numbers.insert(number);
            }
            Ok(())
        };
        match &pods.namespaces {
            Namespaces::Named(name) => self.known.of_namespace(name).try_for_each(&mut look),
            Namespaces::Any | Namespaces::Selected(_) => self.known.iter().try_for_each(&mut look),
        }
    }

    /// `numbers`: of the identities that the rule names.
    fn dialled_by_name(&mut self, rule: &Rule, numbers: &BTreeSet<u32>) -> Result<Vec<(Gate, u32)>, TooMuch> {
        self.budget.look(rule.named.len().saturating_mul(self.known.len()))?;
        let mut dialled = Vec::new();
        let is_named = |number: &u32| rule.peers.is_empty() || numbers.contains(number);
        for (who, identity) in self.known.iter().filter(|(_, number)| is_named(number)) {
            for port in &rule.named {
                let Some(number) = who.ports.get(&(port.name.clone(), port.protocol)) else { continue };
                self.budget.expand(1)?;
                let gate = Gate { direction: Direction::Egress, protocol: Some(port.protocol), port: *number };
                dialled.push((gate, identity));
            }
        }
        Ok(dialled)
    }
}

/// These policies, of which only the defaults can be in force.
pub(super) fn refused(policies: &[&Policy], why: TooMuch) -> Compiled {
    let entries = Entries { too_much: Some(why), ..Entries::default() };
    Compiled { entries, ..without_entries(policies) }
}

fn without_entries(policies: &[&Policy]) -> Compiled {
    let mut compiled = Compiled::default();
    for direction in Direction::BOTH {
        for policy in policies.iter().filter(|policy| policy.concerns(direction)) {
            *compiled.defaults.at_mut(direction) |= defaults(policy, direction);
        }
    }
    compiled
}

fn said(action: Action, policy: &Policy) -> u8 {
    match (action, policy.dry_run, policy.on_deny) {
        (Action::Allow, false, _) => SAYS_ALLOW,
        (Action::Allow, true, _) => DRY_ALLOW,
        (Action::Deny, true, _) => DRY_DENY,
        (Action::Deny, false, OnDeny::Refuse) => SAYS_DENY,
        (Action::Deny, false, OnDeny::Drop) => SAYS_DENY | SAYS_DROP,
    }
}

/// A policy in force also denies in the dry run, which assumes that all policies are in force.
fn defaults(policy: &Policy, direction: Direction) -> u16 {
    let by_default = match policy.default_of(direction) {
        Action::Allow => ISOLATED,
        Action::Deny => ISOLATED | DRY_DENY | said(Action::Deny, policy),
    };
    let by_name = match policy.denies_by_name(direction) {
        false => 0,
        true if policy.dry_run => DRY_NAMES_DENIED,
        true => NAMES_DENIED,
    };
    u16::from(by_default) | by_name
}

/// At least as many as there are [`gates`].
fn most_gates(rule: &Rule) -> usize {
    let count =
        |ports: &Ports| if ports.are_all() { 1 } else { usize::from(ports.last.saturating_sub(ports.first)) + 1 };
    3 + rule.named.len() + rule.ports.iter().map(count).sum::<usize>()
}

/// Named ports of the selected pods are numbers here. Those of peers differ from one peer to the other: see
/// [`Peers::dialled`].
fn gates(rule: &Rule, direction: Direction, own_ports: &NamedPorts) -> Vec<Gate> {
    if rule.ports.is_empty() && rule.named.is_empty() {
        let every = [Some(Protocol::Tcp), Some(Protocol::Udp), None];
        return every.map(|protocol| Gate { direction, protocol, port: 0 }).into();
    }
    let numbers = |ports: &Ports| if ports.are_all() { 0..=0 } else { ports.first..=ports.last };
    let gate = |protocol, port| Gate { direction, protocol: Some(protocol), port };
    let numbered = rule.ports.iter().flat_map(|ports| numbers(ports).map(move |port| gate(ports.protocol, port)));
    let named = rule.named.iter().filter(|_| direction == Direction::Ingress).filter_map(|port| {
        let number = own_ports.get(&(port.name.clone(), port.protocol))?;
        Some(gate(port.protocol, *number))
    });
    numbered.chain(named).collect()
}
