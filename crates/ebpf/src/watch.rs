//! What was counted of TCP connections without a proxy: for each pair of identities and each Service.

use crate::capture::inbound::open;
use crate::error::{Doing, Result};
use crate::layout::MapData;
use crate::{service_pins, walk};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sidestep_bpf::services::types::{relation, relation_key};
use sidestep_bpf::watching::WatchingSkelBuilder;
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

/// Two ends and what is between them. Numbers are those of identities and of Services; 0 is nobody known, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Between {
    /// Identity of the end that has connected.
    pub client: u32,
    /// Identity of the other end.
    pub server: u32,
    /// Number of the Service that was dialled.
    pub service: u32,
    /// Whose sockets were counted.
    pub side: Side,
}

/// Whose sockets were looked at. Two pods of one node count each connection at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Of the end that has connected.
    Client,
    /// Of the other end.
    Server,
}

/// What was counted of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Calls of connect(2), or connections accepted.
    pub attempts: u64,
    /// Connections that were established.
    pub connections: u64,
    /// ... of which so many have ended.
    pub closed: u64,
    /// Bytes that the other end has acknowledged. A SYN and a FIN are one byte each, as in TCP_INFO.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Calls that ended with ECONNREFUSED.
    pub refused: u64,
    /// By the other end, after they had come to be.
    pub reset: u64,
    /// Calls that ended with ETIMEDOUT.
    pub timed_out: u64,
    /// Given up by the program, or unreachable.
    pub failed_otherwise: u64,
    /// Place i: how many calls of connect(2) took less than 2^i microseconds, and not less than half of that. The last
    /// place is for all that took longer.
    pub latencies: [u64; LATENCIES],
    /// The sum of smoothed round-trip times, and how many were looked at: at each close, and at each [`Watch::read`].
    pub rtt_us: u64,
    /// How many round-trip times were added up.
    pub rtts: u64,
}

impl Counted {
    /// None: nothing was looked at.
    pub fn rtt(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.rtt_us.checked_div(self.rtts)?))
    }
}

/// Installed with [`services::Options::watch`]; else there is nothing to read.
pub struct Watch {
    pins: PathBuf,
    relations: MapHandle,
}

impl Watch {
    /// The tables of the programs that are installed there.
    pub fn open(pins: &Path) -> Result<Watch> {
        Ok(Watch { pins: pins.into(), relations: open(&service_pins::maps_path(pins)?, "relations")? })
    }

    /// Everything, with what connections that last have carried so far: that takes a walk through all namespaces.
    pub fn read(&self) -> Result<Vec<(Between, Counted)>> {
        self.count_traffic()?;
        self.read_as_it_is()
    }

    /// Everything, with what connections that last had carried at the last walk.
    pub fn read_as_it_is(&self) -> Result<Vec<(Between, Counted)>> {
        let mut found = Vec::new();
        for key in self.relations.keys().filter_map(|key| relation_key::from_bytes(&key)) {
            // One that has been forgotten meanwhile is not there.
            let value = self.relations.lookup(key.bytes(), MapFlags::ANY).doing("map relations: look up")?;
            let counted = value.as_deref().and_then(relation::from_bytes);
            found.extend(counted.map(|one| (between(&key), one.into())));
        }
        Ok(found)
    }

    /// Makes room. What still goes on between them is counted anew.
    pub fn remove(&self, which: impl Fn(&Between) -> bool) -> Result<()> {
        let keys = self.relations.keys().filter_map(|key| relation_key::from_bytes(&key));
        for key in keys.filter(|key| which(&between(key))).collect::<Vec<_>>() {
            // It may have gone.
            let _ = self.relations.delete(key.bytes());
        }
        Ok(())
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

/// Of every Service, whoever its clients are.
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
