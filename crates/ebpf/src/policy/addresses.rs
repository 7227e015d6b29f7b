//! The kinds of addresses in the network namespaces of pods.

use super::layout::{own_key, own_key_of};
use crate::error::{Error, Result};
use crate::layout::to_address;
use crate::table::Table;
use sidestep_mesh::address::{Address, Family};
use sidestep_mesh::capture::tables::PodNetwork;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// `enum address_kind`
const OWN: u8 = 1;
const SHARED: u8 = 2;
const KNOWN: u8 = 3;
/// Noted for an entry whose writing has not ended or has failed: the table may have it or not.
const UNSURE: u8 = 0;
/// Addresses that one namespace may take of the room that all share.
const MOST: usize = 1024;

/// The addresses of one network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Addresses of its interfaces.
    pub own: BTreeSet<IpAddr>,
    /// Broadcast addresses of its networks.
    pub shared: BTreeSet<IpAddr>,
}

impl Addresses {
    /// Own addresses only, without broadcast addresses.
    pub fn own(own: impl IntoIterator<Item = IpAddr>) -> Addresses {
        Addresses { own: own.into_iter().collect(), shared: BTreeSet::new() }
    }

    /// At most [`MOST`]: others count as foreign. A namespace without known addresses gets no mark that all are known.
    fn kinds(&self) -> BTreeMap<Address, u8> {
        let own = self.own.iter().map(|ip| (*ip, OWN));
        let shared = self.shared.difference(&self.own).map(|ip| (*ip, SHARED));
        let known = (!self.own.is_empty()).then_some((Family::V6.unspecified(), KNOWN));
        own.chain(shared).take(MOST).map(|(ip, kind)| (Address::from(ip), kind)).chain(known).collect()
    }

    fn fit(&self) -> Result<()> {
        let count = self.own.union(&self.shared).count();
        if count <= MOST {
            return Ok(());
        }
        Err(Error::new(format!("map own_addresses: put {count} addresses of one network namespace"), TooMany))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("one may have {}, and the others count as foreign: remove some from its interfaces", MOST)]
struct TooMany;

impl From<&PodNetwork> for Addresses {
    fn from(network: &PodNetwork) -> Addresses {
        Addresses { own: network.addresses.clone(), shared: network.broadcasts.clone() }
    }
}

/// The addresses of all namespaces, by cookie.
pub struct AddressTable {
    table: Table<own_key, u8>,
    written: BTreeMap<u64, BTreeMap<Address, u8>>,
    /// What an earlier process has written of namespaces that this one has not put yet: some may have other addresses by now.
    left: BTreeMap<u64, BTreeSet<Address>>,
}

impl AddressTable {
    pub fn new(table: Table<own_key, u8>) -> AddressTable {
        let mut left: BTreeMap<u64, BTreeSet<Address>> = BTreeMap::new();
        for key in table.keys() {
            left.entry(key.netns).or_default().insert(to_address(&key.address));
        }
        AddressTable { table, written: BTreeMap::new(), left }
    }

    /// Writes the addresses. The mark that all are known is written last. If there is no room for all, addresses that the namespace
    /// has lost are removed all the same.
    pub fn put(&mut self, cookie: u64, addresses: &Addresses) -> Result<()> {
        let wanted = addresses.kinds();
        let written = self.written.entry(cookie).or_default();
        let is_new = |(at, kind): &(&Address, &u8)| written.get(at) != Some(kind);
        let mut new: Vec<(Address, u8)> = wanted.iter().filter(is_new).map(|(at, kind)| (*at, *kind)).collect();
        new.sort_by_key(|(_, kind)| *kind == KNOWN);
        written.extend(new.iter().map(|(at, _)| (*at, UNSURE)));
        let put =
            self.table.put_all(&new.iter().map(|(at, kind)| (own_key_of(cookie, *at), *kind)).collect::<Vec<_>>());
        if put.is_ok() {
            written.extend(new);
        }
        let left = self.left.get(&cookie).into_iter().flatten();
        let gone = written.keys().chain(left).filter(|at| !wanted.contains_key(at));
        self.table.remove_all(&gone.map(|at| own_key_of(cookie, *at)).collect::<Vec<_>>())?;
        self.left.remove(&cookie);
        written.retain(|at, _| wanted.contains_key(at));
        put.and(addresses.fit())
    }

    /// Removes the addresses. What cannot be removed stays noted for the next try. `::`, the mark that all are known, goes first.
    pub fn remove(&mut self, cookie: u64) -> Result<()> {
        let written = self.written.get(&cookie).into_iter().flat_map(BTreeMap::keys);
        let left = self.left.get(&cookie).into_iter().flatten();
        let gone: BTreeSet<&Address> = written.chain(left).collect();
        self.table.remove_all(&gone.into_iter().map(|at| own_key_of(cookie, *at)).collect::<Vec<_>>())?;
        self.written.remove(&cookie);
        self.left.remove(&cookie);
        Ok(())
    }

    /// Removes what an earlier process has left of namespaces that are no longer wanted.
    pub fn retain(&self, is_wanted: impl Fn(u64) -> bool) -> Result<()> {
        self.table.retain(|key| self.written.contains_key(&key.netns) || is_wanted(key.netns))
    }

    /// Namespaces whose addresses in the table differ from what was written.
    pub fn damaged(&self) -> Result<Vec<u64>> {
        let mut damaged = Vec::new();
        for (cookie, written) in &self.written {
            for (at, kind) in written {
                if self.table.get(&own_key_of(*cookie, *at))? != Some(*kind) {
                    damaged.push(*cookie);
                    break;
                }
            }
        }
        Ok(damaged)
    }

    pub fn len(&self) -> usize {
        self.written.values().map(BTreeMap::len).sum()
    }

    pub fn room(&self) -> u32 {
        self.table.room()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::libbpf_sys::bpf_map_create_opts;
    use libbpf_rs::{MapHandle, MapType};

    fn table(room: u32) -> AddressTable {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as _,
            map_flags: libbpf_rs::libbpf_sys::BPF_F_NO_PREALLOC,
            ..bpf_map_create_opts::default()
        };
        let key = size_of::<own_key>() as u32;
        let map = MapHandle::create(MapType::Hash, Some("own"), key, 1, room, &options).expect("a map (needs root)");
        AddressTable::new(Table::new(map, "own"))
    }

    fn addresses(count: u8) -> Addresses {
        Addresses::own((1..=count).map(|last| [10, 0, 0, last].into()))
    }

    fn kept(table: &AddressTable) -> usize {
        table.table.keys().count()
    }

    #[test]
    fn what_had_no_room_leaves_nothing_when_its_pod_ends() {
        let mut table = table(4);
        assert!(table.put(1, &addresses(9)).is_err());
        assert!(kept(&table) > 0);
        table.remove(1).unwrap();
        assert_eq!(kept(&table), 0);
        table.put(2, &addresses(3)).unwrap();
        assert_eq!(kept(&table), 4, "three, and that these are all");
        assert!(table.damaged().unwrap().is_empty());
    }

    #[test]
    fn what_an_earlier_process_has_left_is_a_pods_own_only_if_it_still_is() {
        let mut before = table(8);
        before.put(1, &addresses(2)).unwrap();
        before.put(2, &addresses(2)).unwrap();
        let mut table = AddressTable::new(before.table);
        table.put(1, &addresses(1)).unwrap();
        assert_eq!(kept(&table), 2 + 3, "of the first one an address, and that this is all");
        table.remove(1).unwrap();
        assert_eq!(kept(&table), 3);
        table.remove(2).unwrap();
        assert_eq!(kept(&table), 0, "a namespace that has ended meanwhile");
    }

    #[test]
    fn a_namespace_with_more_addresses_than_its_share_leaves_room_for_others() {
        let mut table = table(2048);
        let many = Addresses::own((0..4000u32).map(|n| std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into()));
        let error = table.put(1, &many).unwrap_err().to_string();
        assert!(error.contains("4000 addresses"), "{error}");
        assert_eq!(kept(&table), MOST + 1);
        table.put(2, &addresses(3)).unwrap();
        assert!(table.damaged().unwrap().is_empty());
        table.put(1, &addresses(2)).unwrap();
        assert_eq!(kept(&table), 3 + 4);
    }

    #[test]
    fn what_a_namespace_has_lost_is_removed_though_there_is_no_room_for_the_rest() {
        let mut table = table(4);
        table.put(1, &addresses(3)).unwrap();
        let others = Addresses::own((1..=9u8).map(|last| [10, 0, 1, last].into()));
        assert!(table.put(1, &others).is_err());
        assert_eq!(kept(&table), 1, "the mark");
    }

    #[test]
    fn what_had_no_room_is_written_when_there_is_some() {
        let mut table = table(4);
        table.put(1, &addresses(2)).unwrap();
        assert!(table.put(2, &addresses(2)).is_err());
        assert_eq!(table.damaged().unwrap(), [2]);
        table.remove(1).unwrap();
        table.put(2, &addresses(2)).unwrap();
        assert!(table.damaged().unwrap().is_empty());
        assert_eq!(kept(&table), 3);
    }
}
