//! Two pods with the same surroundings and the same rules: in one as istio-iptables writes them, in the other at the sockets. For
//! each probe programs and proxy must see the same in both, unless the difference is listed with a reason. The model must agree
//! with both.

mod datagrams;
mod dial;
mod differences;
mod expected;
mod page;
mod probes;
mod sets;
mod site;
mod special;

use crate::node::Node;
use crate::scratch::Scratch;
use dial::{Outcome, dial};
use differences::Case;
use probes::{From, Picker, Probe};
use sidestep_ebpf::capture::{Captures, pod_network};
use sidestep_ebpf::netns;
use sidestep_mesh::address::{Family, Protocol};
use sidestep_mesh::capture::rules::Rules;
use sidestep_testkit::greeter::{Owner, become_owner};
use sidestep_testkit::program::command;
use sidestep_testkit::{Namespace, istio_rules};
use site::{REFUSED, Site};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// For answers that should come at once. A probe with a difference is repeated with more patience.
const PATIENCE: Duration = Duration::from_millis(150);
const MORE_PATIENCE: Duration = Duration::from_secs(3);
/// Ports of one round of rules: conntrack remembers connections of earlier rounds. When all are used, new pods are made.
const WINDOW: u16 = 1500;
const FIRST_PORT: u16 = 16000;
const WINDOWS: u16 = 15;

struct Twins {
    /// Owns the pods.
    _node: Node,
    captures: Captures,
    theirs: Site,
    ours: Site,
    /// Number of rounds so far.
    rounds: u16,
    /// How often each difference occurred.
    found: BTreeMap<&'static str, usize>,
    /// How often each kind of outcome occurred.
    seen: BTreeMap<&'static str, usize>,
    compared: usize,
}

impl Twins {
    fn new() -> Twins {
        let node = Node::new();
        let captures = Captures::open(&node.options.pins).unwrap();
        let (theirs, ours) = (Site::new("theirs"), Site::new("ours"));
        Twins {
            _node: node,
            captures,
            theirs,
            ours,
            rounds: 0,
            found: BTreeMap::new(),
            seen: BTreeMap::new(),
            compared: 0,
        }
    }

    fn apply(&mut self, rules: &Rules) {
        if self.rounds > 0 && self.rounds.is_multiple_of(WINDOWS) {
            self.theirs = Site::new(&format!("theirs-{}", self.rounds));
        }
        for (family, program) in [(Family::V4, "iptables-restore"), (Family::V6, "ip6tables-restore")] {
            restore(&self.theirs.pod, program, &istio_rules::tables(rules, family));
        }
        let path = self.ours.pod.path();
        let place = pod_network::read(&path).unwrap();
        self.captures.put(&path, netns::cookie_of(&path).unwrap(), rules, &place).unwrap();
        let first = FIRST_PORT + self.rounds % WINDOWS * WINDOW;
        [&self.theirs, &self.ours].iter().for_each(|site| site.take_ports(first, first + WINDOW - 1));
        self.rounds += 1;
    }

    /// Returns all differences that are not listed.
    fn compare(&mut self, rules: &Rules, probes: &[Probe]) -> Vec<String> {
        let (theirs, ours) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| outcomes(&self.theirs, probes));
            let ours = outcomes(&self.ours, probes);
            (theirs.join().unwrap(), ours)
        });
        let mut wrong = Vec::new();
        for (probe, (mut theirs, mut ours)) in probes.iter().zip(theirs.into_iter().zip(ours)) {
            if self.translated(rules, probe, &theirs, &ours) != ours {
                // If a port was used before, conntrack treats this call as it did that one, so the probe is repeated.
                theirs = again(&self.theirs, probe);
                if ours == Outcome::Silent {
                    ours = again(&self.ours, probe);
                }
            }
            for (whose, outcome) in [("iptables", &theirs), ("sockets", &ours)] {
                if !expected::agrees(rules, probe, outcome) {
                    let verdict = expected::verdict(rules, probe);
                    wrong.push(format!("{probe:?}\n  evaluator {verdict:?}\n  {whose} {outcome:?}"));
                }
            }
            *self.seen.entry(expected::kind(rules, probe, &ours)).or_default() += 1;
            let translated = self.translated(rules, probe, &theirs, &ours);
            if translated != ours {
                wrong.push(format!("{probe:?}\n  iptables {theirs:?}\n  sockets  {ours:?}"));
            }
        }
        self.compared += probes.len();
        wrong
    }

    /// Makes sure that the comparison covered enough.
    fn check_what_was_seen(&self) {
        println!("{} compared: {:?}", self.compared, self.seen);
        println!("differences: {:?}", self.found);
        for kind in expected::KINDS {
            assert!(self.seen[kind] >= 100, "{kind}");
        }
        for difference in &differences::ALL {
            assert!(self.found[difference.name] > 0, "{} is not one any more", difference.name);
        }
    }

    fn check_what_is_special(&mut self) {
        for scenario in &special::ALL {
            self.apply(&sets::named(scenario.rules));
            let seen = [&self.theirs, &self.ours].map(scenario.run);
            assert_eq!(seen, scenario.expected, "{}", scenario.difference);
        }
    }

    fn translated(&mut self, rules: &Rules, probe: &Probe, theirs: &Outcome, ours: &Outcome) -> Outcome {
        let (mut outcome, case) = (theirs.clone(), Case { rules, probe, ours });
        for difference in &differences::ALL {
            let before = outcome.clone();
            (difference.translate)(&case, &mut outcome);
            *self.found.entry(difference.name).or_default() += usize::from(outcome != before);
        }
        outcome
    }
}

/// Replaces all rules.
fn restore(pod: &Namespace, program: &str, tables: &str) {
    let scratch = Scratch::new();
    let text = if tables.contains("* raw") { tables.to_string() } else { format!("{tables}* raw\nCOMMIT\n") };
    let file = scratch.file("rules", &text);
    pod.finish(command(program).arg(file));
}

/// Ordered as the probes.
fn outcomes(site: &Site, probes: &[Probe]) -> Vec<Outcome> {
    let places: BTreeSet<Option<Owner>> = probes.iter().map(owner).collect();
    let mut found: BTreeMap<usize, Outcome> = BTreeMap::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            places.into_iter().map(|place| scope.spawn(move || of_one(site, probes, place))).collect();
        workers.into_iter().for_each(|worker| found.extend(worker.join().unwrap()));
    });
    found.into_values().collect()
}

/// None: the neighbour.
fn owner(probe: &Probe) -> Option<Owner> {
    match probe.from {
        From::Pod(owner) => Some(owner),
        From::Neighbour(_) => None,
    }
}

fn of_one(site: &Site, probes: &[Probe], place: Option<Owner>) -> Vec<(usize, Outcome)> {
    enter(site, place);
    let its = probes.iter().enumerate().filter(|(_, probe)| owner(probe) == place);
    its.map(|(i, probe)| (i, dial(probe, PATIENCE))).collect()
}

fn enter(site: &Site, place: Option<Owner>) {
    match place {
        Some(owner) => {
            site.pod.enter();
            become_owner(owner);
        }
        None => site.neighbour.enter(),
    }
}

fn again(site: &Site, probe: &Probe) -> Outcome {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            enter(site, owner(probe));
            dial(probe, MORE_PATIENCE)
        });
        worker.join().unwrap()
    })
}

/// Whether an answer or a refusal can be expected.
fn is_answered(rules: &Rules, probe: &Probe) -> bool {
    let bypasses = expected::listener(rules, probe) == probe.to.port();
    let from_loopback = probe.source.address().is_some_and(|ip| {
        let ip = ip.to_canonical();
        ip.is_loopback() || ip == "::6".parse::<std::net::IpAddr>().unwrap()
    });
    let is_lost = bypasses && from_loopback && probe.interface() != "lo";
    let is_untold = probe.protocol == Protocol::Udp && !probe.connected && probe.to.port() == REFUSED;
    !is_lost && !is_untold
}

/// Number of probes for each set of rules.
const CALLS: usize = 500;
/// Number of random sets of rules.
const RANDOM: usize = 4;
/// The same for a long run.
const MANY: usize = 150;
const SEED: &str = "SIDESTEP_TWIN_SEED";

/// Prints the errors, and returns their number.
fn run(twins: &mut Twins, picker: &mut Picker, name: &str, rules: &Rules) -> usize {
    twins.apply(rules);
    let mut probes = picker.calls(CALLS);
    probes.retain(|probe| is_answered(rules, probe));
    probes.extend(probes::inbound());
    let wrong = twins.compare(rules, &probes);
    if !wrong.is_empty() {
        println!("{name}: {} of {} are wrong\n{rules:?}\n{}", wrong.len(), probes.len(), wrong.join("\n"));
    }
    wrong.len()
}

fn run_random(twins: &mut Twins, picker: &mut Picker, rounds: usize) -> usize {
    let one = |i| {
        let rules = sets::random(&mut picker.numbers);
        run(twins, picker, &format!("random rules {i}"), &rules)
    };
    (0..rounds).map(one).sum()
}

#[test]
fn programs_and_proxy_see_what_they_would_see_of_istio_iptables() {
    let (mut twins, mut picker) = (Twins::new(), Picker::new(1));
    let named = sets::NAMES.into_iter().map(|name| run(&mut twins, &mut picker, name, &sets::named(name)));
    let wrong = named.sum::<usize>() + run_random(&mut twins, &mut picker, RANDOM);
    assert_eq!(wrong, 0);
    twins.check_what_was_seen();
    twins.check_what_is_special();
}

#[test]
#[ignore = "takes minutes; SIDESTEP_TWIN_SEED=N for others"]
fn the_same_for_many_random_rules() {
    let seed = std::env::var(SEED).map_or(2, |seed| seed.parse().unwrap());
    let (mut twins, mut picker) = (Twins::new(), Picker::new(seed));
    assert_eq!(run_random(&mut twins, &mut picker, MANY), 0, "{SEED}={seed}");
    println!("{} compared", twins.compared);
}
