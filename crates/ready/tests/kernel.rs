//! The order of events against that of one list, as the kernel keeps it: a set whose members are all the kernel's, beside
//! one where some are rings.

use proptest::prelude::*;
use sidestep_ready::{Asked, Entry, GROUPS, Looked, Node, Nodes, Ready, Set};

/// What an epoll set does with what is ready (fs/eventpoll.c: ep_poll_callback, ep_send_events).
#[derive(Clone, Default)]
struct Kernel {
    listed: Vec<u32>,
}

impl Kernel {
    fn arrive(&mut self, id: u32) {
        if !self.listed.contains(&id) {
            self.listed.push(id);
        }
    }

    /// Returns up to `most` entries that are ready, and whether that was all.
    fn wait(
        &mut self,
        most: usize,
        is_ready: impl Fn(u32) -> bool,
        is_level: impl Fn(u32) -> bool,
    ) -> (Vec<u32>, bool) {
        let (mut told, mut again) = (vec![], vec![]);
        let mut looked = 0;
        for id in &self.listed {
            if told.len() == most {
                break;
            }
            looked += 1;
            if is_ready(*id) {
                told.push(*id);
                if is_level(*id) {
                    again.push(*id);
                }
            }
        }
        let all = looked == self.listed.len();
        self.listed.drain(..looked);
        self.listed.extend(again);
        (told, all)
    }
}

#[derive(Clone, Copy, Debug)]
struct Member {
    is_ring: bool,
    is_level: bool,
}

/// Doorbells have numbers from here on.
const BELLS: u32 = 1000;

/// A set whose rings the kernel does not see.
struct Ours {
    members: Vec<Member>,
    is_ready: Vec<bool>,
    /// Of a ring: something has arrived since the last look.
    edge: Vec<bool>,
    nodes: Vec<Node>,
    kernel: Kernel,
    /// News of rings that no wait has taken yet: when it came.
    news: Vec<(u32, u64)>,
    armed: [bool; GROUPS],
    entries: Vec<u32>,
    out: Vec<u32>,
    time: u64,
}

impl Nodes for Ours {
    fn node(&mut self, number: u32) -> Option<&mut Node> {
        self.nodes.get_mut(number as usize)
    }
}

impl Set for Ours {
    fn entry(&mut self, at: usize) -> Entry {
        match self.entries[at] {
            bell if bell >= BELLS => Entry::Bell(bell - BELLS),
            id => Entry::Native { data: u64::from(id), is_level: self.members[id as usize].is_level },
        }
    }

    fn poll(&mut self, number: u32) -> Looked {
        let at = number as usize;
        let again = self.members[at].is_level;
        let edge = std::mem::take(&mut self.edge[at]);
        if !self.is_ready[at] || !again && !edge {
            return Looked::Nothing;
        }
        self.out.push(number);
        Looked::Reported { again }
    }

    fn hand_over(&mut self, at: usize) -> bool {
        self.out.push(self.entries[at]);
        true
    }

    fn arrived(&mut self, _: usize, _: u64) -> Option<u64> {
        None
    }
}

impl Ours {
    fn new(members: &[Member], groups: u32) -> Ours {
        let mut ring = 0;
        let nodes = members.iter().map(|m| {
            ring += u32::from(m.is_ring);
            let mut node = Node::default();
            node.group = ring % groups;
            node
        });
        Ours {
            members: members.to_vec(),
            is_ready: vec![false; members.len()],
            edge: vec![false; members.len()],
            nodes: nodes.collect(),
            kernel: Kernel::default(),
            news: vec![],
            armed: [false; GROUPS],
            entries: vec![],
            out: vec![],
            time: 1,
        }
    }

    fn arrive(&mut self, id: u32) {
        let at = id as usize;
        self.is_ready[at] = true;
        self.time += 1;
        if !self.members[at].is_ring {
            return self.kernel.arrive(id);
        }
        self.edge[at] = true;
        if self.news.iter().any(|(of, _)| *of == id) {
            return;
        }
        self.news.push((id, self.time));
        let group = self.nodes[at].group;
        if std::mem::take(&mut self.armed[group as usize]) {
            self.kernel.arrive(BELLS + group);
        }
    }

    fn ask(&mut self, most: usize) -> (Vec<u32>, bool) {
        let (members, is_ready) = (&self.members, &self.is_ready);
        let is_bell = |id: u32| id >= BELLS;
        let is_level = |id: u32| !is_bell(id) && members[id as usize].is_level;
        self.kernel.wait(most, |id| is_bell(id) || is_ready[id as usize], is_level)
    }

    fn wait(&mut self, ready: &mut Ready, most: usize) -> Vec<u32> {
        self.out.clear();
        self.time += 1;
        // As it is: the one who looks does not find the news in the order of its arrival.
        for (id, time) in std::mem::take(&mut self.news).into_iter().rev() {
            ready.list.hear(self, id, time);
        }
        ready.list.settle(self);
        let wait = ready.begin(self, most);
        let mut room = most - wait.reported;
        while room > 0 {
            let (entries, all) = self.ask(room);
            let natives = entries.iter().filter(|id| **id < BELLS).count();
            self.entries = entries;
            let asked = Asked { entries: self.entries.len(), natives, more: !all };
            let (rings, handed) = ready.merge(self, &wait, Some(asked), room);
            room -= rings + handed;
            if all || natives == self.entries.len() {
                break;
            }
            // Entries of ours have taken the room of the program's own.
        }
        self.time += 1;
        ready.arm(self.time);
        self.armed = [true; GROUPS];
        self.out.clone()
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Arrive(usize),
    Drain(usize),
    Wait(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => any::<prop::sample::Index>().prop_map(|i| Op::Arrive(i.index(1 << 20))),
        2 => any::<prop::sample::Index>().prop_map(|i| Op::Drain(i.index(1 << 20))),
        2 => (1usize..6).prop_map(Op::Wait),
    ];
    prop::collection::vec(op, 1..120)
}

fn members(most: usize) -> impl Strategy<Value = Vec<Member>> {
    let member = (any::<bool>(), any::<bool>()).prop_map(|(is_ring, is_level)| Member { is_ring, is_level });
    prop::collection::vec(member, 1..most)
}

/// Runs the same on both, and has `check` look at what each wait has returned.
fn run(
    members: &[Member],
    groups: u32,
    ops: &[Op],
    room: impl Fn(usize) -> usize,
    mut check: impl FnMut(&[u32], &[u32], &[bool]) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut kernel = Kernel::default();
    let mut ours = Ours::new(members, groups);
    let mut ready = Ready::default();
    ours.wait(&mut ready, 1); // arms the doorbells
    for op in ops {
        match *op {
            Op::Arrive(at) => {
                let id = (at % members.len()) as u32;
                ours.arrive(id);
                kernel.arrive(id);
            }
            Op::Drain(at) => ours.is_ready[at % members.len()] = false,
            Op::Wait(most) => {
                let is_ready = ours.is_ready.clone();
                let (expected, _) =
                    kernel.wait(room(most), |id| is_ready[id as usize], |id| members[id as usize].is_level);
                let told = ours.wait(&mut ready, room(most));
                check(&expected, &told, &is_ready)?;
            }
        }
    }
    Ok(())
}

fn of_kind(told: &[u32], members: &[Member], ring: bool) -> Vec<u32> {
    told.iter().copied().filter(|id| members[*id as usize].is_ring == ring).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// As long as each ring has a doorbell of its own the order is the kernel's.
    #[test]
    fn rings_with_their_own_doorbells_are_in_the_kernels_order(
        mut members in members(9), ops in ops(),
    ) {
        let mut rings = 0;
        for member in &mut members {
            rings += usize::from(member.is_ring);
            member.is_ring &= rings <= GROUPS;
        }
        run(&members, GROUPS as u32, &ops, |_| 100, |expected, told, _| {
            prop_assert_eq!(expected, told);
            Ok(())
        })?;
    }

    /// However many share a doorbell: rings among themselves, and the kernel's events, are in the kernel's order.
    #[test]
    fn rings_are_in_order_of_arrival(members in members(12), groups in 1..=GROUPS as u32, ops in ops()) {
        run(&members, groups, &ops, |_| 100, |expected, told, _| {
            for ring in [true, false] {
                prop_assert_eq!(of_kind(expected, &members, ring), of_kind(told, &members, ring));
            }
            Ok(())
        })?;
    }

    /// With little room: as many as there is room for, each once.
    #[test]
    fn room_is_used(members in members(12), groups in 1..=GROUPS as u32, ops in ops()) {
        let members: Vec<_> = members.iter().map(|m| Member { is_level: true, ..*m }).collect();
        run(&members, groups, &ops, |room| room, |expected, told, _| {
            prop_assert_eq!(expected.len(), told.len(), "{:?} {:?}", expected, told);
            let mut sorted = told.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), told.len());
            Ok(())
        })?;
    }

    /// With little room nobody waits for ever: what stays ready is reported as often as anything else, by and large.
    #[test]
    fn nobody_starves(members in members(12), groups in 1..=GROUPS as u32, room in 1usize..4, start in ops()) {
        let members: Vec<_> = members.iter().map(|m| Member { is_level: true, ..*m }).collect();
        let mut ours = Ours::new(&members, groups);
        let mut ready = Ready::default();
        for op in start {
            match op {
                Op::Arrive(at) => ours.arrive((at % members.len()) as u32),
                Op::Drain(at) => ours.is_ready[at % members.len()] = false,
                Op::Wait(_) => drop(ours.wait(&mut ready, room)),
            }
        }
        (0..members.len() as u32).for_each(|id| ours.arrive(id));
        let mut told = vec![0usize; members.len()];
        for _ in 0..40 * members.len() {
            ours.wait(&mut ready, room).iter().for_each(|id| told[*id as usize] += 1);
        }
        let fair = 40 * room.min(members.len());
        prop_assert!(told.iter().all(|n| *n * 4 >= fair), "{:?} of {}", told, fair);
    }
}
