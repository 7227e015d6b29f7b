//! How cases run.

use crate::hosts::Side;

/// How a case runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// On kernel TCP, which defines the right behaviour.
    Plain,
    /// Preloaded, upgraded at the first byte.
    Upgraded,
    /// Preloaded; each direction keeps changing between ring and kernel.
    Flip,
    /// Between two hosts, on kernel TCP.
    Hosts,
    /// Between two hosts, preloaded; the client's host has a stack.
    HostsClient,
    /// The server's host has a stack.
    HostsServer,
    /// Both have.
    HostsBoth,
    /// Both have, and connections keep changing between stack and kernel.
    HostsFlip,
}

pub const ALL: [Mode; 8] = [
    Mode::Plain,
    Mode::Upgraded,
    Mode::Flip,
    Mode::Hosts,
    Mode::HostsClient,
    Mode::HostsServer,
    Mode::HostsBoth,
    Mode::HostsFlip,
];

impl Mode {
    /// As option `--mode` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Upgraded => "upgraded",
            Mode::Flip => "flip",
            Mode::Hosts => "hosts-kernel",
            Mode::HostsClient => "hosts-client",
            Mode::HostsServer => "hosts-server",
            Mode::HostsBoth => "hosts-both",
            Mode::HostsFlip => "hosts-flip",
        }
    }

    /// Whether cases have the library.
    pub fn is_preloaded(self) -> bool {
        !matches!(self, Mode::Plain | Mode::Hosts)
    }

    /// Whether connections keep changing their carrier.
    pub fn flips(self) -> bool {
        matches!(self, Mode::Flip | Mode::HostsFlip)
    }

    /// The sides whose host has a stack. None: all is on one host.
    pub fn stacks(self) -> Option<&'static [Side]> {
        match self {
            Mode::Plain | Mode::Upgraded | Mode::Flip => None,
            Mode::Hosts => Some(&[]),
            Mode::HostsClient => Some(&[Side::Client]),
            Mode::HostsServer => Some(&[Side::Server]),
            Mode::HostsBoth | Mode::HostsFlip => Some(&[Side::Client, Side::Server]),
        }
    }
}

/// The modes of an option's value: names, separated by commas; `all`: those on one host; `hosts`: those between two.
pub fn named(names: &str) -> Result<Vec<Mode>, String> {
    let mut modes = vec![];
    for name in names.split(',') {
        let is_meant = |mode: &&Mode| match name {
            "all" => mode.stacks().is_none(),
            "hosts" => mode.stacks().is_some(),
            _ => mode.name() == name,
        };
        let before = modes.len();
        modes.extend(ALL.iter().filter(is_meant));
        if modes.len() == before {
            let known = ALL.map(Mode::name).join(", ");
            return Err(format!("--mode is {known}, all or hosts, not '{name}'"));
        }
    }
    Ok(modes)
}
