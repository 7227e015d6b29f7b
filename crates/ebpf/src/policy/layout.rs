//! Conversions between the model's types and those of the policy maps.

use crate::layout::{MapData, address_of};
use ipnet::IpNet;
pub use sidestep_bpf::services::types::{identity, identity_key, own_key, policed, rule_key, rule_range_key};
use sidestep_mesh::address::{Address, Protocol};
use sidestep_mesh::policy::plan::Known;
use sidestep_mesh::policy::rules::BySide;
use sidestep_mesh::policy::tables::{Gate, RuleKey};

// SAFETY: integers only, whose sizes add up to the size of the whole, so nothing lies between them.
unsafe impl MapData for policed {}
// SAFETY: as above.
unsafe impl MapData for rule_key {}
// SAFETY: as above.
unsafe impl MapData for rule_range_key {}
// SAFETY: as above.
unsafe impl MapData for identity_key {}
// SAFETY: as above.
unsafe impl MapData for identity {}
// SAFETY: as above.
unsafe impl MapData for own_key {}
const _: () = assert!(size_of::<policed>() == 4 * 4);
const _: () = assert!(size_of::<rule_key>() == 2 * 4 + 2 + 1 + 1);
const _: () = assert!(size_of::<rule_range_key>() == 2 * 4 + 2 + 1 + 1 + 16);
const _: () = assert!(size_of::<identity_key>() == 4 + 16);
const _: () = assert!(size_of::<identity>() == 2 * 4);
const _: () = assert!(size_of::<own_key>() == 8 + 16);

/// Bits of a range's key before the address.
const BEFORE_ADDRESS: u32 = 64;
/// An IPv4 address lies in the last bits of its mapped form.
const MAPPED: u32 = 96;
/// `enum identity_flags`
const REQUIRES_PROXY: u32 = 1 << 0;

pub fn policed_of(policy: u32, generation: u32, defaults: BySide<u16>) -> policed {
    policed { policy, generation, defaults: [defaults.egress.into(), defaults.ingress.into()] }
}

/// The protocol's number, or `PROTOCOL_OTHER`.
fn number_of(protocol: Option<Protocol>) -> u8 {
    protocol.map_or(0, Protocol::number)
}

pub fn rule_key_of(policy: u32, from: &RuleKey) -> rule_key {
    let Gate { direction, protocol, port } = from.gate;
    rule_key { policy, identity: from.identity, port, protocol: number_of(protocol), direction: direction as u8 }
}

pub fn range_key_of(policy: u32, gate: &Gate, range: IpNet) -> rule_range_key {
    rule_range_key {
        bits: BEFORE_ADDRESS + u32::from(range.prefix_len()) + if range.addr().is_ipv4() { MAPPED } else { 0 },
        policy,
        port: gate.port,
        protocol: number_of(gate.protocol),
        direction: gate.direction as u8,
        address: address_of(Address::from(range.addr())),
    }
}

pub fn identity_key_of(generation: u32, at: Address) -> identity_key {
    identity_key { generation, address: address_of(at) }
}

pub fn identity_of(from: Known) -> identity {
    identity { number: from.identity, flags: u32::from(from.requires_proxy) * REQUIRES_PROXY }
}

pub fn own_key_of(netns: u64, at: Address) -> own_key {
    own_key { netns, address: address_of(at) }
}
