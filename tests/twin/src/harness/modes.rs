//! The modes in which a program runs.

use sidestep_posix::hosts::Side;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preloaded {
    Nobody,
    Both,
    /// Only the process of this side is preloaded.
    Only(u8),
}

#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub name: &'static str,
    /// Each side has a process of its own.
    pub two: bool,
    pub preloaded: Preloaded,
    pub settings: &'static [Setting],
    /// Connections keep changing their carrier.
    pub flips: bool,
    /// The sides, of two hosts, that have a stack. None: all is on one host.
    pub stacks: Option<&'static [Side]>,
}

type Setting = (&'static str, &'static str);

const AT_ONCE: Setting = ("SIDESTEP_UPGRADE_AFTER", "0ops");
/// Makes it independent of timing which calls go by ring.
const IN_SYNC: Setting = ("SIDESTEP_PAIRING", "sync");

/// Both ends are preloaded, and upgraded at the first byte.
const fn mode(name: &'static str, two: bool) -> Mode {
    Mode { name, two, preloaded: Preloaded::Both, settings: &[AT_ONCE, IN_SYNC], flips: false, stacks: None }
}

/// Between two hosts.
const fn between(name: &'static str, two: bool, stacks: &'static [Side]) -> Mode {
    Mode { stacks: Some(stacks), ..mode(name, two) }
}

const BOTH: &[Side] = &[Side::Client, Side::Server];

pub const PLAIN: [Mode; 2] = [
    Mode { preloaded: Preloaded::Nobody, settings: &[], ..mode("plain", false) },
    Mode { preloaded: Preloaded::Nobody, settings: &[], ..mode("plain-two", true) },
];

pub const MODES: &[Mode] = &[
    mode("upgraded", false),
    mode("upgraded-two", true),
    Mode { flips: true, ..mode("flip", false) },
    Mode { flips: true, ..mode("flip-two", true) },
    Mode { settings: &[AT_ONCE, IN_SYNC, ("SIDESTEP_RING_SIZE", "4096")], ..mode("small-two", true) },
    Mode { settings: &[AT_ONCE, IN_SYNC, ("SIDESTEP_SPIN", "50")], ..mode("spin-two", true) },
    Mode { settings: &[], ..mode("defaults", false) },
    Mode { preloaded: Preloaded::Only(0), ..mode("only-0", true) },
    Mode { preloaded: Preloaded::Only(1), ..mode("only-1", true) },
];

/// Between two hosts: for campaigns of their own, whose programs also run on the kernel there.
pub const HOSTS: &[Mode] = &[
    between("hosts-both", false, BOTH),
    between("hosts-both-two", true, BOTH),
    between("hosts-client", false, &[Side::Client]),
    between("hosts-server-two", true, &[Side::Server]),
    Mode { flips: true, ..between("hosts-flip", false, BOTH) },
];

impl Mode {
    /// The sides of a connection, that which calls connect(2) first, whose bytes must go by ring.
    pub fn rings(self) -> Vec<Side> {
        match self.preloaded {
            Preloaded::Both => self.stacks.unwrap_or(BOTH).to_vec(),
            Preloaded::Nobody | Preloaded::Only(_) => vec![],
        }
    }

    /// The kernel's run that is the reference for this mode.
    pub fn plain(self) -> Mode {
        Mode { stacks: self.stacks.map(|_| &[][..]), ..PLAIN[usize::from(self.two)] }
    }
}

/// Which modes a program runs in: all, or some of them by its seed.
#[derive(Clone)]
pub enum Choice {
    Some,
    These(Vec<Mode>),
}

impl Choice {
    /// The modes for this seed: upgraded and flipping in both layouts, and two others in turn.
    pub fn of(&self, seed: u64) -> Vec<Mode> {
        match self {
            Choice::These(modes) => modes.clone(),
            Choice::Some => {
                let at = seed as usize % 2;
                let (first, others) = MODES.split_at(4);
                let other = |i: usize| others[(seed as usize / 2 + i) % others.len()];
                vec![first[at], first[3 - at], other(0), other(2)]
            }
        }
    }
}

pub fn named(names: &str) -> Result<Choice, String> {
    match names {
        "all" => Ok(Choice::These(MODES.to_vec())),
        "some" => Ok(Choice::Some),
        "hosts" => Ok(Choice::These(HOSTS.to_vec())),
        _ => these(names).map(Choice::These),
    }
}

fn these(names: &str) -> Result<Vec<Mode>, String> {
    let find = |name: &str| {
        let known = || MODES.iter().chain(HOSTS).map(|w| w.name).collect::<Vec<_>>().join(", ");
        MODES
            .iter()
            .chain(HOSTS)
            .find(|w| w.name == name)
            .copied()
            .ok_or_else(|| format!("no mode is called {name}; there are {}", known()))
    };
    let modes: Vec<Mode> = names.split(',').map(find).collect::<Result<_, _>>()?;
    match modes.iter().filter(|mode| mode.stacks.is_some()).count() {
        0 => Ok(modes),
        n if n == modes.len() => Ok(modes),
        _ => {
            Err("modes on one host and modes between two have different references: run them one after the other"
                .into())
        }
    }
}
