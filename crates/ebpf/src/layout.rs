//! Conversions between the model's types and those of the maps, which are generated from the programs' BTF.

use ipnet::IpNet;
pub use sidestep_bpf::services::types::{
    address, backend, endpoint, event, frontend, frontend_key, member_key, network_key, service_counters, slot,
    source_key,
};
use sidestep_bpf::splice::types as splice;
pub use sidestep_bpf::splice::types::{flow, pair, pair_key, switches, traffic};
use sidestep_mesh::address::{Address, Endpoint, Protocol};
use sidestep_mesh::plane::{Frontend, FrontendKey, Member, Scope, Slot, Source};
use std::net::Ipv6Addr;

/// Version of the layout of keys and values. Tables of another version are not reused but created anew.
pub const VERSION: u32 = 2;

/// `enum frontend_flags`
const LEAST_CONNECTIONS: u32 = 1 << 0;
const HELD: u32 = 1 << 1;
const MASQUERADE: u32 = 1 << 2;
const RESTRICTED: u32 = 1 << 3;
const ELSEWHERE: u32 = 1 << 4;

/// `enum node_address`: an address of the node at which NodePorts answer.
pub const WITH_NODE_PORTS: u8 = 1;
/// ... and one at which they do not.
pub const WITHOUT_NODE_PORTS: u8 = 2;

/// The mark of packets that the kernel is to refuse.
pub const REFUSED_MARK: u32 = 0x51de5e9;

/// A value in a map: plain bytes.
///
/// # Safety
/// The type has no padding (all bytes are initialized) and every bit pattern is a value of it.
pub unsafe trait MapData: Copy + Default {
    /// The value as the map holds it.
    fn bytes(&self) -> &[u8] {
        // SAFETY: all of its bytes are initialized, by the trait's contract, and live as long as `self`.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// None if the length is another.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: the length is right, every bit pattern is a value, and the read needs no alignment.
        (bytes.len() == size_of::<Self>()).then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

macro_rules! map_data {
    ($($type:ty: $size:expr),+) => { $(
        // SAFETY: integers only, whose sizes add up to the size of the whole, so nothing lies between them.
        unsafe impl MapData for $type {}
        const _: () = assert!(size_of::<$type>() == $size);
    )+ };
}

map_data!(
    u8: 1, u32: 4, u64: 8, address: 16, frontend_key: 16 + 2 + 1 + 1, frontend: 6 * 4, member_key: 2 * 4, slot: 4 * 4, source_key: 2 * 4 + 16, network_key: 4 + 16,
    backend: 20 + 4 + 2 * 8, service_counters: 3 * 8, event: 2 * 8 + 20 + 3 * 4 + 2 + 2 + 4,
    switches: 4 * 4, traffic: 2 * 8, flow: 2 * 20 + 8, pair_key: 2 * 20 + 8 + 2 * 4, pair: 4 * 8 + 2 * 4
);

/// Converts to the maps' form.
pub fn address_of(from: Address) -> address {
    let octets = from.0.octets();
    let word = |i: usize| u32::from_ne_bytes([octets[4 * i], octets[4 * i + 1], octets[4 * i + 2], octets[4 * i + 3]]);
    address { word: [word(0), word(1), word(2), word(3)] }
}

/// Converts from the maps' form.
pub fn to_address(from: &address) -> Address {
    let mut octets = [0; 16];
    for (place, word) in octets.chunks_exact_mut(4).zip(from.word) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    Address(Ipv6Addr::from(octets))
}

/// Converts to the maps' form.
pub fn endpoint_of(from: Endpoint) -> endpoint {
    endpoint { address: address_of(from.address), port: from.port.to_be(), pad: 0 }
}

/// Converts from the maps' form.
pub fn to_endpoint(from: &endpoint) -> Endpoint {
    Endpoint { address: to_address(&from.address), port: u16::from_be(from.port) }
}

/// Converts to the maps' form.
pub fn key_of(from: &FrontendKey) -> frontend_key {
    let (address, port) = (address_of(from.address), from.port.to_be());
    frontend_key { address, port, protocol: from.protocol.number(), scope: from.scope as u8 }
}

/// Converts from the maps' form; None: its values are unknown.
pub fn to_key(from: &frontend_key) -> Option<FrontendKey> {
    let scope = Scope::ALL.into_iter().find(|scope| *scope as u8 == from.scope)?;
    let protocol = Protocol::from_number(from.protocol)?;
    Some(FrontendKey { address: to_address(&from.address), port: u16::from_be(from.port), protocol, scope })
}

/// Converts to the maps' form.
pub fn frontend_of(from: &Frontend) -> frontend {
    let Frontend { service, first, count, affinity_seconds, sibling, .. } = *from;
    let bit = |is: bool, bit: u32| u32::from(is) * bit;
    frontend {
        service,
        first,
        count,
        affinity_seconds,
        flags: bit(from.least_connections, LEAST_CONNECTIONS)
            | bit(from.held, HELD)
            | bit(from.masquerade, MASQUERADE)
            | bit(from.restricted, RESTRICTED)
            | bit(from.elsewhere, ELSEWHERE),
        sibling,
    }
}

/// Converts from the maps' form.
pub fn to_frontend(from: &frontend) -> Frontend {
    let has = |bit| from.flags & bit != 0;
    let frontend { service, first, count, affinity_seconds, sibling, .. } = *from;
    Frontend {
        service,
        first,
        count,
        affinity_seconds,
        sibling,
        least_connections: has(LEAST_CONNECTIONS),
        held: has(HELD),
        masquerade: has(MASQUERADE),
        restricted: has(RESTRICTED),
        elsewhere: has(ELSEWHERE),
    }
}

/// Converts to the maps' form.
pub fn source_of(from: &Source) -> source_key {
    let length = u32::BITS + u32::from(from.length);
    source_key { length, service: from.service, address: address_of(from.address) }
}

/// Converts from the maps' form; None: no such prefix.
pub fn to_source(from: &source_key) -> Option<Source> {
    let length = u8::try_from(from.length.checked_sub(u32::BITS)?).ok()?;
    Some(Source { service: from.service, address: to_address(&from.address), length })
}

/// Converts to the maps' form.
pub fn network_of(from: &IpNet) -> network_key {
    let Source { address, length, .. } = Source::new(0, from);
    network_key { length: length.into(), address: address_of(address) }
}

/// Converts to the maps' form.
pub fn slot_of(from: &Slot) -> slot {
    slot { backend: from.backend, other: from.other, own: from.own, pad: 0 }
}

/// Converts to the maps' form.
pub fn member_of(from: &Member) -> member_key {
    member_key { service: from.service, backend: from.backend }
}

/// Converts from the maps' form.
pub fn to_member(from: &member_key) -> Member {
    Member { service: from.service, backend: from.backend }
}

/// A connection as the splice programs name it. `netns` counts only if an address is a loopback address.
pub fn flow_of(client: Endpoint, server: Endpoint, netns: u64) -> flow {
    let is_inside = [client, server].iter().any(|end| end.address.0.to_canonical().is_loopback());
    let end = |from: Endpoint| splice::endpoint {
        address: splice::address { word: address_of(from.address).word },
        port: from.port.to_be(),
        pad: 0,
    };
    flow { client: end(client), server: end(server), netns: if is_inside { netns } else { 0 } }
}
