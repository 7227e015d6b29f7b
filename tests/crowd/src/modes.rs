//! How the processes of a run have the library.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    pub name: &'static str,
    pub is_preloaded: bool,
    /// Each direction keeps changing its carrier.
    pub flips: bool,
    /// Percent of the bytes of all runs that must go by ring, of connections that nothing takes to the kernel.
    pub least: u64,
    pub settings: &'static [(&'static str, &'static str)],
}

const AT_ONCE: (&str, &str) = ("SIDESTEP_UPGRADE_AFTER", "0ops");
/// Makes it independent of timing which calls go by ring.
const IN_SYNC: (&str, &str) = ("SIDESTEP_PAIRING", "sync");

const PLAIN: Mode = Mode { name: "plain", is_preloaded: false, flips: false, least: 0, settings: &[] };
const UPGRADED: Mode = Mode { name: "upgraded", is_preloaded: true, least: 20, settings: &[AT_ONCE, IN_SYNC], ..PLAIN };

/// The kernel is first: what it does not pass is no fault of the library.
pub const ALL: [Mode; 7] = [
    PLAIN,
    UPGRADED,
    Mode { name: "flip", flips: true, least: 4, ..UPGRADED },
    Mode { name: "small", settings: &[AT_ONCE, IN_SYNC, ("SIDESTEP_RING_SIZE", "4096")], ..UPGRADED },
    Mode { name: "spin", settings: &[AT_ONCE, IN_SYNC, ("SIDESTEP_SPIN", "50")], ..UPGRADED },
    Mode { name: "in-time", least: 10, settings: &[AT_ONCE], ..UPGRADED },
    // Many connections are too short for it.
    Mode { name: "defaults", least: 0, settings: &[], ..UPGRADED },
];

/// The modes of an option's value: names, separated by commas, or `all`.
pub fn named(names: &str) -> Result<Vec<Mode>, String> {
    if names == "all" {
        return Ok(ALL.to_vec());
    }
    let known = || ALL.map(|mode| mode.name).join(", ");
    let find = |name| ALL.iter().find(|mode| mode.name == name).copied();
    names
        .split(',')
        .map(|name| find(name).ok_or_else(|| format!("--modes is {} or all, not '{name}'", known())))
        .collect()
}
