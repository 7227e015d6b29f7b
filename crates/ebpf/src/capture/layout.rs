//! Conversions between the model's types and those of the capture maps.

use crate::layout::{MapData, address_of};
use ipnet::IpNet;
pub use sidestep_bpf::services::types::{
    listener_key, pending_entry, pod, range_key, redirected_flow, route, set_key, usage,
};
use sidestep_mesh::address::Address;
use sidestep_mesh::capture::tables::{Flags, RangeKind, RouteEntry, Scalars, SetKind};

// SAFETY: integers only, whose sizes add up to the size of the whole, so nothing lies between them.
unsafe impl MapData for pod {}
// SAFETY: as above.
unsafe impl MapData for set_key {}
// SAFETY: as above.
unsafe impl MapData for range_key {}
// SAFETY: as above.
unsafe impl MapData for route {}
// SAFETY: as above.
unsafe impl MapData for listener_key {}
// SAFETY: as above.
unsafe impl MapData for redirected_flow {}
// SAFETY: as above.
unsafe impl MapData for pending_entry {}
// SAFETY: as above.
unsafe impl MapData for usage {}
const _: () = assert!(size_of::<redirected_flow>() == 8 + 2 * 20);
const _: () = assert!(size_of::<pending_entry>() == 2 * 8 + 20 + 4);
const _: () = assert!(size_of::<usage>() == 8);
const _: () = assert!(size_of::<pod>() == 5 * 4 + 4 * 2);
const _: () = assert!(size_of::<set_key>() == 3 * 4);
const _: () = assert!(size_of::<range_key>() == 3 * 4 + 16);
const _: () = assert!(size_of::<route>() == 4 + 16);
const _: () = assert!(size_of::<listener_key>() == 8 + 2 * 4);

/// `LISTENER_PLACES`, `enum role`
pub const LISTENER_PLACES: u32 = 64;
const ROLE_OUTBOUND: u32 = 0;
const ROLE_INBOUND: u32 = 1;
pub const ROLE_SINK: u32 = 2;
/// The roles of a proxy's listeners.
pub const ROLES: [u32; 2] = [ROLE_OUTBOUND, ROLE_INBOUND];

/// Bits of a range's key before the address: owner and kind.
const OWNER_AND_KIND: u32 = 64;
/// An IPv4 address lies in the last bits of its mapped form.
const MAPPED: u32 = 96;
/// Added to the kind of IPv4 ranges, so that ::/0 does not contain IPv4 addresses.
const RANGE_OF_V4: u32 = 1 << 8;

/// `enum pod_flags`
const PASS_WITHOUT_PROXY: u32 = 1 << 0;
const ALL_RANGES: u32 = 1 << 1;
const LOOPBACK_INCLUDED: u32 = 1 << 2;
const INBOUND_ALL_BUT: u32 = 1 << 3;
const GROUPS_ALL_BUT: u32 = 1 << 4;
const DNS: u32 = 1 << 5;
const DNS_ALL: u32 = 1 << 6;
const HAS_UIDS: u32 = 1 << 7;
const HAS_GIDS: u32 = 1 << 8;
const INERT: u32 = 1 << 9;

/// The same pod, inert: nothing new is captured. So it begins, while its proxy's listeners are collected, and so it ends.
pub fn inert(of: pod) -> pod {
    pod { flags: of.flags | INERT, ..of }
}

pub fn is_inert(pod: &pod) -> bool {
    pod.flags & INERT != 0
}

/// All flags except [`INERT`].
fn flags_of(flags: Flags, scalars: &Scalars) -> u32 {
    let bits = [
        (PASS_WITHOUT_PROXY, flags.pass_without_proxy),
        (ALL_RANGES, flags.all_ranges),
        (LOOPBACK_INCLUDED, flags.loopback_included),
        (INBOUND_ALL_BUT, flags.inbound_all_but),
        (GROUPS_ALL_BUT, flags.groups_all_but),
        (DNS, flags.dns),
        (DNS_ALL, flags.dns_all),
        (HAS_UIDS, scalars.first_uid.is_some()),
        (HAS_GIDS, scalars.first_gid.is_some()),
    ];
    set_of(&bits)
}

fn set_of(bits: &[(u32, bool)]) -> u32 {
    bits.iter().filter(|(_, set)| *set).fold(0, |all, (bit, _)| all | bit)
}

pub fn pod_of(scalars: &Scalars, rules: u32, network: u32) -> pod {
    pod {
        rules,
        network,
        flags: flags_of(scalars.flags, scalars),
        first_uid: scalars.first_uid.unwrap_or(u32::MAX),
        first_gid: scalars.first_gid.unwrap_or(u32::MAX),
        outbound_port: scalars.outbound_port,
        inbound_port: scalars.inbound_port,
        tunnel_port: scalars.tunnel_port,
        dns_port: scalars.dns_port,
    }
}

pub fn set_key_of(owner: u32, kind: SetKind, number: u32) -> set_key {
    set_key { owner, kind: kind as u32, number }
}

pub fn range_key_of(owner: u32, kind: RangeKind, range: IpNet) -> range_key {
    let (mapped, of_v4) = if range.addr().is_ipv4() { (MAPPED, RANGE_OF_V4) } else { (0, 0) };
    let bits = OWNER_AND_KIND + mapped + u32::from(range.prefix_len());
    range_key { bits, owner, kind: kind as u32 + of_v4, address: address_of(Address::from(range.addr())) }
}

/// `enum route_flags`
const ROUTE_LOCAL: u32 = 1 << 0;
const ROUTE_EXCLUDED: u32 = 1 << 1;
const ROUTE_ERROR_SHIFT: u32 = 16;

pub fn route_of(from: Option<&RouteEntry>) -> route {
    let Some(from) = from else { return route::default() };
    let bits = [(ROUTE_LOCAL, from.local), (ROUTE_EXCLUDED, from.excluded)];
    let flags = u32::from(from.error) << ROUTE_ERROR_SHIFT | set_of(&bits);
    route { flags, source: address_of(Address::from(from.source)) }
}
