//! Counters of TCP connections without a proxy, for each pair of identities and each Service.

use crate::capture::inbound::open;
use crate::error::{Doing, Result};
use crate::layout::MapData;
use crate::{service_pins, walk};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use sidestep_bpf::services::types::{relation, relation_key};
use sidestep_bpf::watching::WatchingSkelBuilder;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::time::Duration;

// SAFETY: integers only, whose sizes add up to the size of the whole, so nothing lies between them.
unsafe impl MapData for relation_key {}
// SAFETY: as above.
unsafe impl MapData for relation {}
const _: () = assert!(size_of::<relation_key>() == 4 * 4);
const _: () = assert!(size_of::<relation>() == (7 + 4 + LATENCIES) * 8);

/// `enum failure`
const FAILED_REFUSED: usize = 0;
const FAILED_RESET: usize = 1;
const FAILED_TIMEOUT: usize = 2;
const FAILED_OTHERWISE: usize = 3;
/// `LATENCIES`
pub const LATENCIES: usize = 24;

/// Two ends and the Service between them. Numbers are those of identities and Services; 0: unknown, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Between {
    /// Identity of the end that connected.
    pub client: u32,
    /// Identity of the other end.
    pub server: u32,
    /// Number of the Service that was dialled.
    pub service: u32,
    /// Whose sockets were counted.
    pub side: Side,
}

/// Whose sockets were counted. A connection between two pods of one node is counted at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Those of the end that connected.
    Client,
    /// Those of the other end.
    Server,
}

/// The counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Calls of connect(2), or connections accepted.
    pub attempts: u64,
    /// Connections that were established.
    pub connections: u64,
    /// Of these, how many have ended.
    pub closed: u64,
    /// Bytes that the other end has acknowledged. A SYN and a FIN are one byte each, as in TCP_INFO.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Calls that ended with ECONNREFUSED.
    pub refused: u64,
    /// Reset by the peer after they were established.
    pub reset: u64,
    /// Calls that ended with ETIMEDOUT.
    pub timed_out: u64,
    /// Given up by the program, or the destination was unreachable.
    pub failed_otherwise: u64,
    /// Element i: how many calls of connect(2) took less than 2^i microseconds and at least half of that. The last element is
    /// for all longer ones.
    pub latencies: [u64; LATENCIES],
    /// Sum of smoothed round-trip times, sampled at each close and at each [`Watch::read`].
    pub rtt_us: u64,
    /// Number of samples in the sum.
    pub rtts: u64,
}

impl Counted {
    /// The mean round-trip time; None: no samples.
    pub fn rtt(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.rtt_us.checked_div(self.rtts)?))
    }
}

/// The tables, which are filled only if the programs are installed with [`services::Options::watch`].
pub struct Watch {
    pins: PathBuf,
    relations: MapHandle,
}

impl Watch {
    /// Opens the tables of the installed programs.
    pub fn open(pins: &Path) -> Result<Watch> {
        Ok(Watch { pins: pins.into(), relations: open(&service_pins::maps_path(pins)?, "relations")? })
    }

    /// All counters, including the traffic of open connections until now: that takes a walk through all namespaces.
    pub fn read(&self) -> Result<Vec<(Between, Counted)>> {
        self.count_traffic()?;
        self.read_as_it_is()
    }

    /// All counters, with the traffic of open connections at the last walk.
    pub fn read_as_it_is(&self) -> Result<Vec<(Between, Counted)>> {
        let mut found = Vec::new();
        for key in self.keys() {
            // It may have been forgotten meanwhile.
            let value = self.relations.lookup(key.bytes(), MapFlags::ANY).doing("map relations: look up")?;
            let counted = value.as_deref().and_then(relation::from_bytes);
            found.extend(counted.map(|one| (between(&key), one.into())));
        }
        Ok(found)
    }

    /// Removes counters, to make room. Open connections are then counted from zero.
    pub fn remove(&self, which: impl Fn(&Between) -> bool) -> Result<()> {
        for key in self.keys().into_iter().filter(|key| which(&between(key))) {
            match self.relations.delete(key.bytes()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).doing("map relations: delete"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Each key once: the kernel begins anew if the key that was read last is deleted meanwhile.
    fn keys(&self) -> Vec<relation_key> {
        let keys: BTreeSet<Vec<u8>> = self.relations.keys().collect();
        keys.iter().filter_map(|key| relation_key::from_bytes(key)).collect()
    }

    fn count_traffic(&self) -> Result<()> {
        let mut object = MaybeUninit::uninit();
        let mut open = WatchingSkelBuilder::default().open(&mut object).doing("read the counting program")?;
        service_pins::use_pinned(open.open_object_mut(), &self.pins)?;
        let skeleton = open.load().doing("load the counting program")?;
        let link = skeleton.progs.count_traffic.attach().doing("attach the iterator over TCP sockets")?;
        walk::everywhere(&link)
    }
}

/// Sums for each Service, over all clients.
pub fn by_service(all: &[(Between, Counted)]) -> std::collections::BTreeMap<u32, Counted> {
    let mut services = std::collections::BTreeMap::<u32, Counted>::new();
    for (between, counted) in all.iter().filter(|(between, _)| between.service != 0) {
        *services.entry(between.service).or_default() += *counted;
    }
    services
}

fn between(key: &relation_key) -> Between {
    let side = if key.side == 0 { Side::Client } else { Side::Server };
    Between { client: key.client, server: key.server, service: key.service, side }
}

impl From<relation> for Counted {
    fn from(one: relation) -> Counted {
        let relation { attempts, connections, closed, sent, received, rtt_us, rtts, latencies, failures, .. } = one;
        Counted {
            attempts,
            connections,
            closed,
            sent,
            received,
            refused: failures[FAILED_REFUSED],
            reset: failures[FAILED_RESET],
            timed_out: failures[FAILED_TIMEOUT],
            failed_otherwise: failures[FAILED_OTHERWISE],
            latencies,
            rtt_us,
            rtts,
        }
    }
}

impl AddAssign for Counted {
    fn add_assign(&mut self, one: Counted) {
        self.attempts += one.attempts;
        self.connections += one.connections;
        self.closed += one.closed;
        self.sent += one.sent;
        self.received += one.received;
        self.refused += one.refused;
        self.reset += one.reset;
        self.timed_out += one.timed_out;
        self.failed_otherwise += one.failed_otherwise;
        self.rtt_us += one.rtt_us;
        self.rtts += one.rtts;
        self.latencies.iter_mut().zip(one.latencies).for_each(|(sum, one)| *sum += one);
    }
}
