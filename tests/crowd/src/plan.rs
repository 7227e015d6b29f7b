//! What each connection of a run does, drawn from the run's seed: both ends know the whole of it.

use std::ops::Range;

use sidestep_posix::pattern::mix;
use sidestep_posix::rng::Rng;

use crate::content::{Content, Stream, WRITERS};
use crate::hand::{self, Hand};
use crate::wait::{self, Way};
use crate::ways::{self, Ways};

/// A run.
#[derive(Clone, Debug)]
pub struct Run {
    pub seed: u64,
    pub clients: u32,
    /// Connections of each client.
    each: u32,
    /// Only these connections; none: all.
    pub only: Vec<u32>,
}

/// When a shared set tells of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    Level,
    Edge,
    OneShot,
    EdgeOneShot,
}

/// How a process works on its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crew {
    /// A thread for each, or more.
    Alone,
    /// So many threads wait for one set that has them all; `nested`: it is in another set, for which they wait.
    Shared { trigger: Trigger, threads: usize, nested: bool },
}

/// How an end works on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One thread, whose calls do not wait; it waits in this way.
    Driven(Way),
    /// Threads for each direction, whose calls wait. The reader waits before each call, besides; or its calls wait so many milliseconds.
    Threads { before: Option<Way>, limit: Option<i64> },
    /// One of several connections of a shared set.
    Member,
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub connection: u32,
    pub is_client: bool,
    pub shape: Shape,
    pub sends: u64,
    pub receives: u64,
    pub content: [Content; 2],
    pub sends_by: Vec<&'static str>,
    pub receives_by: Vec<&'static str>,
    pub most_sent: u64,
    pub most_received: u64,
    /// SO_SNDBUF and SO_RCVBUF.
    pub buffers: [Option<i32>; 2],
    /// It shuts its direction down after the last byte. Otherwise its close is the end.
    pub shuts: bool,
    pub reads_to_end: bool,
    /// It sends nothing until the other direction has ended.
    pub waits_for_end: bool,
    /// After so many bytes of both directions.
    pub hands: Vec<(u64, Hand)>,
    pub pauses: bool,
    /// The client waits for the server's first bytes before it goes on: both have the same library by then.
    pub is_greeted: bool,
    /// Decides everything else.
    pub key: u64,
}

/// How both ends end.
#[derive(Clone, Copy)]
enum End {
    BothShut,
    /// This end closes when it has all bytes, and the other one learns of it.
    ClosedBy(bool),
    /// This end shuts down first, and is answered then.
    Answered(bool),
}

/// No more connections than patterns.
const MOST_CONNECTIONS: u32 = 120;

impl Run {
    pub fn new(seed: u64, clients: u32, only: Vec<u32>) -> Run {
        let each = 4 + Rng::new(mix(seed)).below(7) as u32;
        Run { seed, clients, each: each.min(MOST_CONNECTIONS / clients), only }
    }

    /// Those of a client.
    pub fn connections(&self, client: u32) -> Vec<u32> {
        let all: Range<u32> = client * self.each..(client + 1) * self.each;
        all.filter(|connection| self.only.is_empty() || self.only.contains(connection)).collect()
    }

    pub fn all(&self) -> Vec<u32> {
        (0..self.clients).flat_map(|client| self.connections(client)).collect()
    }

    /// Bytes that are sent and received, and how many of them on connections that nothing takes to the kernel.
    pub fn bytes(&self) -> [u64; 2] {
        let mut sums = [0, 0];
        for connection in self.all() {
            let [server, client] = [false, true].map(|is_client| self.plan(connection, is_client));
            let bytes = 2 * (client.sends + client.receives);
            sums[0] += bytes;
            sums[1] += if server.is_by_ring() && client.is_by_ring() { bytes } else { 0 };
        }
        sums
    }

    /// None: the server's.
    pub fn crew(&self, client: Option<u32>) -> Crew {
        let mut rng = Rng::new(mix(self.seed ^ (0x1000 + client.map_or(0, |client| u64::from(client) + 1))));
        if rng.below(2) == 0 {
            return Crew::Alone;
        }
        let trigger = *rng.pick(&[Trigger::Level, Trigger::Edge, Trigger::OneShot, Trigger::EdgeOneShot]);
        Crew::Shared { trigger, threads: 1 + rng.below(4) as usize, nested: rng.below(3) == 0 }
    }

    /// An end of a connection.
    pub fn plan(&self, connection: u32, is_client: bool) -> Plan {
        let key = mix(self.seed << 16 ^ u64::from(connection));
        let mut both = Rng::new(key);
        let small = both.below(5) == 0;
        let lengths = [length(&mut both, small), length(&mut both, small)];
        let end = match both.below(4) {
            0 => End::Answered(both.below(2) == 0),
            1 | 2 => End::ClosedBy(both.below(2) == 0),
            _ => End::BothShut,
        };
        let ends = [false, true].map(|it| self.end(connection, it, mix(key ^ u64::from(it) << 32), small, end));
        let contents = ends.each_ref().map(|own| content(own, small));
        let totals = [0, 1].map(|i| whole_records(lengths[i], contents[i]));
        let [server, client] = ends;
        let (mut plan, own) = if is_client { (client, 1) } else { (server, 0) };
        (plan.sends, plan.receives) = (totals[own], totals[1 - own]);
        plan.content = [contents[own], contents[1 - own]];
        plan.is_greeted = both.below(8) != 0;
        plan.hands = hands(&plan);
        plan
    }

    /// All but what depends on the other end.
    fn end(&self, connection: u32, is_client: bool, key: u64, small: bool, end: End) -> Plan {
        let mut rng = Rng::new(key);
        let crew = self.crew(is_client.then_some(connection / self.each));
        let (is_first, waits_for_end) = match end {
            End::BothShut => (false, false),
            End::ClosedBy(who) => (who == is_client, false),
            End::Answered(who) => (false, who != is_client),
        };
        let closes = matches!(end, End::ClosedBy(_));
        let shape = shape(crew, waits_for_end, &mut rng);
        let waits = matches!(shape, Shape::Threads { limit: None, .. });
        let mut receives_by = some_of(&ways::RECEIVING, &mut rng);
        if waits && rng.below(3) == 0 {
            receives_by.push(ways::WHOLE);
        }
        let buffer = |rng: &mut Rng, little: i32| match rng.below(3) {
            _ if small => Some(little),
            0 => Some(1 << 20),
            _ => None,
        };
        let most = |rng: &mut Rng| if small { 2000 } else { *rng.pick(&[600, 9000, 70_000, 200_000]) };
        Plan {
            seed: self.seed,
            connection,
            is_client,
            shape,
            sends: 0,
            receives: 0,
            content: [Content::Bytes; 2],
            sends_by: some_of(&ways::SENDING, &mut rng),
            receives_by,
            most_sent: most(&mut rng),
            most_received: most(&mut rng),
            buffers: [buffer(&mut rng, 4608), buffer(&mut rng, 65_536)],
            shuts: !closes && (!waits_for_end || rng.below(2) == 0),
            reads_to_end: !is_first,
            waits_for_end,
            hands: vec![],
            pauses: rng.below(3) == 0,
            is_greeted: false,
            key,
        }
    }
}

impl Plan {
    pub fn out(&self) -> Stream {
        Stream::new(self.content[0], self.seed, self.connection, self.is_client)
    }

    /// Whether it does nothing that takes the connection to the kernel, or leaves it there.
    pub fn is_by_ring(&self) -> bool {
        let by_kernel = |ways: &[&str], of: &Ways| ways.iter().any(|way| of.by_kernel.contains(way));
        let calls = by_kernel(&self.sends_by, &ways::SENDING) || by_kernel(&self.receives_by, &ways::RECEIVING);
        self.is_greeted && self.hands.is_empty() && !calls
    }

    pub fn incoming(&self) -> Stream {
        Stream::new(self.content[1], self.seed, self.connection, !self.is_client)
    }
}

fn length(rng: &mut Rng, small: bool) -> u64 {
    match rng.below(12) {
        0 => 0,
        _ if small => rng.size(40_000) as u64,
        1 => 500_000 + rng.below(1_500_000),
        _ => rng.size(400_000) as u64,
    }
}

fn shape(crew: Crew, waits_for_end: bool, rng: &mut Rng) -> Shape {
    if crew != Crew::Alone {
        return Shape::Member;
    }
    if waits_for_end || rng.below(2) == 0 {
        return Shape::Driven(*rng.pick(wait::ALL));
    }
    match rng.below(3) {
        0 => Shape::Threads { before: None, limit: None },
        1 => Shape::Threads { before: None, limit: Some(1 + rng.below(60) as i64) },
        // Its calls wait, so it does not read until there is nothing, as an edge would have it.
        _ => Shape::Threads { before: Some(*rng.pick(wait::ALL)).filter(|way| way.tells_levels()), limit: None },
    }
}

/// One way, or some. One end of twelve has those, too, with which its connection goes to the kernel.
fn some_of(ways: &Ways, rng: &mut Rng) -> Vec<&'static str> {
    let mut some: Vec<_> = (0..1 + rng.below(3)).map(|_| *rng.pick(ways.by_ring)).collect();
    if rng.below(12) == 0 {
        some.push(*rng.pick(ways.by_kernel));
    }
    some
}

/// Bytes that records have at most: the kernel, too, tears some if its buffers are full.
const MOST_RECORDED: u64 = 200_000;

fn content(plan: &Plan, small: bool) -> Content {
    let mut rng = Rng::new(plan.key ^ 3);
    match plan.shape {
        Shape::Threads { limit: None, .. } if !small && plan.buffers == [None; 2] && rng.below(2) == 0 => {
            Content::Records { threads: 2 + rng.below(WRITERS - 1), size: 2 + rng.below(400) }
        }
        _ => Content::Bytes,
    }
}

/// As many bytes as whole records have, of each thread as many.
fn whole_records(length: u64, content: Content) -> u64 {
    match content {
        Content::Bytes => length,
        Content::Records { threads, size } => length.min(MOST_RECORDED) / (threads * size) * (threads * size),
    }
}

fn hands(plan: &Plan) -> Vec<(u64, Hand)> {
    let mut rng = Rng::new(plan.key ^ 4);
    if !matches!(plan.shape, Shape::Driven(_)) || rng.below(3) != 0 {
        return vec![];
    }
    let all = (plan.sends + plan.receives).max(1);
    let mut hands: Vec<_> = (0..1 + rng.below(4)).map(|_| (rng.below(all), *rng.pick(hand::ALL))).collect();
    hands.sort_by_key(|(at, _)| *at);
    hands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_agree_and_no_connection_waits_for_ever() {
        for seed in 0..200 {
            let run = Run::new(seed, 8, vec![]);
            for connection in run.all() {
                let [server, client] = [false, true].map(|it| run.plan(connection, it));
                assert_eq!((server.sends, server.receives), (client.receives, client.sends));
                assert_eq!(server.content[0], client.content[1]);
                assert!(!(server.waits_for_end && client.waits_for_end));
                for (own, other) in [(&server, &client), (&client, &server)] {
                    assert!(!own.waits_for_end || other.shuts, "what ends must be told before it is answered");
                    assert!(own.shuts || own.waits_for_end || !own.reads_to_end || !other.reads_to_end);
                    assert!(own.reads_to_end || !own.shuts);
                }
            }
        }
    }

    #[test]
    fn a_seed_decides() {
        let told = |seed| format!("{:?}", Run::new(seed, 4, vec![]).plan(3, true));
        assert_eq!(told(5), told(5));
        assert_ne!(told(5), told(6));
    }
}
