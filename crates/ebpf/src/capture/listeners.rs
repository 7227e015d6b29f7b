//! The map of the proxies' listeners, and how it gets the listeners that existed before their pod was captured.

use super::layout::{LISTENER_PLACES, ROLES, listener_key};
use crate::error::{Doing, Result};
use crate::layout::MapData;
use crate::{netns, service_pins};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle};
use sidestep_bpf::listening::ListeningSkelBuilder;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::mem::MaybeUninit;
use std::path::Path;

pub struct Listeners {
    map: MapHandle,
    /// The iterator over TCP sockets; None until it is first needed.
    finder: Option<Link>,
}

/// The socket's cookie for each place.
type Places = BTreeMap<u32, u64>;

impl Listeners {
    pub fn new(map: MapHandle) -> Listeners {
        Listeners { map, finder: None }
    }

    /// Brings the map in line with the namespace's listeners at the proxy's ports (as `pods` has them). Listeners that are in the
    /// map stay there throughout; others are removed.
    pub fn renew(&mut self, pins: &Path, namespace: &Path, netns: u64) -> Result<()> {
        let before = ROLES.map(|role| self.places(netns, role));
        self.find(pins, namespace)?;
        for (role, before) in ROLES.into_iter().zip(before) {
            let now = self.places(netns, role);
            let is_full = now.len() == LISTENER_PLACES as usize;
            let new = now.into_iter().filter(|(place, _)| !before.contains_key(place));
            let new: HashMap<u64, u32> = new.map(|(place, socket)| (socket, place)).collect();
            let mut kept = BTreeSet::new();
            for (place, socket) in before {
                match new.get(&socket) {
                    // The iterator found it once more, at another place: that is a duplicate.
                    Some(double) if kept.insert(socket) => self.remove_one(netns, role, *double, socket),
                    // Already handled; or no listener of this proxy any more, unless the map was too full to find it again.
                    None if is_full => {}
                    _ => self.remove_one(netns, role, place, socket),
                }
            }
        }
        Ok(())
    }

    /// Removes the entry unless the kernel has removed it itself: then another socket may be in its place.
    fn remove_one(&self, netns: u64, role: u32, place: u32, socket: u64) {
        if self.socket(netns, role, place) == Some(socket) {
            let _ = self.map.delete(listener_key { netns, role, place }.bytes());
        }
    }

    /// Loads the iterator if it is not loaded yet.
    pub fn prepare(&mut self, pins: &Path) -> Result<()> {
        if self.finder.is_none() {
            self.finder = Some(load(pins)?);
        }
        Ok(())
    }

    /// Finds the listeners of a namespace that has none in the map yet.
    pub fn find(&mut self, pins: &Path, namespace: &Path) -> Result<()> {
        self.prepare(pins)?;
        let link = self.finder.as_ref().expect("it is prepared");
        let walk = || Iter::new(link).map(|mut sockets| sockets.read_to_end(&mut Vec::new()));
        let walked = netns::inside(namespace, walk).at("enter", namespace)?.at("iterate in", namespace)?;
        walked.map(drop).at("iterate in", namespace)
    }

    fn places(&self, netns: u64, role: u32) -> Places {
        (0..LISTENER_PLACES).filter_map(|place| Some((place, self.socket(netns, role, place)?))).collect()
    }

    /// The cookie of the socket in this place.
    fn socket(&self, netns: u64, role: u32, place: u32) -> Option<u64> {
        let found = self.map.lookup(listener_key { netns, role, place }.bytes(), MapFlags::ANY).ok()??;
        Some(u64::from_ne_bytes(found.try_into().ok()?))
    }

    /// How many sockets of the pod's proxy listen for outbound and for inbound connections.
    pub fn of(&self, netns: u64) -> [usize; 2] {
        ROLES.map(|role| self.places(netns, role).len())
    }

    /// The same for all pods that have any.
    pub fn all(&self) -> HashMap<u64, [usize; 2]> {
        let mut all = HashMap::<u64, [usize; 2]>::new();
        for key in self.map.keys().filter_map(|key| listener_key::from_bytes(&key)) {
            if let Some(count) = all.entry(key.netns).or_default().get_mut(key.role as usize) {
                *count += 1;
            }
        }
        all
    }

    pub fn room(&self) -> u32 {
        self.map.max_entries()
    }

    /// Removes the namespace's listeners from the map. The sockets themselves are not affected.
    pub fn remove(&self, netns: u64) {
        for role in ROLES {
            for place in 0..LISTENER_PLACES {
                let _ = self.map.delete(listener_key { netns, role, place }.bytes());
            }
        }
    }
}

fn load(pins: &Path) -> Result<Link> {
    let mut object = MaybeUninit::uninit();
    let mut open = ListeningSkelBuilder::default().open(&mut object).doing("read the iterator")?;
    service_pins::use_pinned(open.open_object_mut(), pins)?;
    let skeleton = open.load().doing("load the iterator over TCP sockets")?;
    skeleton.progs.find_listeners.attach().doing("attach the iterator over TCP sockets")
}
