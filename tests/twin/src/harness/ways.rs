//! The ways in which a program runs.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preloaded {
    Nobody,
    Both,
    /// Only the process of this side is preloaded.
    Only(u8),
}

#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub name: &'static str,
    /// Each side has a process of its own.
    pub two: bool,
    pub preloaded: Preloaded,
    pub settings: &'static [Setting],
    /// Connections keep changing their carrier.
    pub flips: bool,
}

type Setting = (&'static str, &'static str);

const AT_ONCE: Setting = ("SIDESTEP_UPGRADE_AFTER", "0ops");
/// Makes it independent of timing which calls go by ring.
const IN_SYNC: Setting = ("SIDESTEP_PAIRING", "sync");

/// Both ends are preloaded, and upgraded at the first byte.
const fn way(name: &'static str, two: bool) -> Way {
    Way { name, two, preloaded: Preloaded::Both, settings: &[AT_ONCE, IN_SYNC], flips: false }
}

pub const PLAIN: [Way; 2] = [
    Way { preloaded: Preloaded::Nobody, settings: &[], ..way("plain", false) },
    Way { preloaded: Preloaded::Nobody, settings: &[], ..way("plain-two", true) },
];

pub const WAYS: &[Way] = &[
    way("upgraded", false),
    way("upgraded-two", true),
    Way { flips: true, ..way("flip", false) },
    Way { flips: true, ..way("flip-two", true) },
    Way { settings: &[AT_ONCE, IN_SYNC, ("SIDESTEP_RING_SIZE", "4096")], ..way("small-two", true) },
    Way { settings: &[AT_ONCE, IN_SYNC, ("SIDESTEP_SPIN", "50")], ..way("spin-two", true) },
    Way { settings: &[], ..way("defaults", false) },
    Way { preloaded: Preloaded::Only(0), ..way("only-0", true) },
    Way { preloaded: Preloaded::Only(1), ..way("only-1", true) },
];

impl Way {
    /// Bytes must go by ring.
    pub fn rings(self) -> bool {
        self.preloaded == Preloaded::Both
    }
}

/// Which ways a program runs in: all, or some of them by its seed.
#[derive(Clone)]
pub enum Choice {
    Some,
    These(Vec<Way>),
}

impl Choice {
    /// The ways for this seed: upgraded and flipping in both layouts, and two others in turn.
    pub fn of(&self, seed: u64) -> Vec<Way> {
        match self {
            Choice::These(ways) => ways.clone(),
            Choice::Some => {
                let at = seed as usize % 2;
                let (first, others) = WAYS.split_at(4);
                let other = |i: usize| others[(seed as usize / 2 + i) % others.len()];
                vec![first[at], first[3 - at], other(0), other(2)]
            }
        }
    }
}

pub fn named(names: &str) -> Result<Choice, String> {
    match names {
        "all" => Ok(Choice::These(WAYS.to_vec())),
        "some" => Ok(Choice::Some),
        _ => these(names).map(Choice::These),
    }
}

fn these(names: &str) -> Result<Vec<Way>, String> {
    let find = |name: &str| {
        let known = || WAYS.iter().map(|w| w.name).collect::<Vec<_>>().join(", ");
        WAYS.iter()
            .find(|w| w.name == name)
            .copied()
            .ok_or_else(|| format!("no way is called {name}; there are {}", known()))
    };
    names.split(',').map(find).collect()
}
