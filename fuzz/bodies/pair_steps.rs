//! Both ends of a connection, each with a thread that writes and one that reads, a broker, and what may happen to them, in any
//! order: the program sees what plain TCP would have shown it.
#![allow(dead_code)] // each engine uses its part

use super::engine::Arc;
use super::input::Input;
use super::pair_ends::{Got, PATIENCE, Receiver, Sender};
use super::pair_wire::Wire;
use sidestep_conn::{Course, Event, Flip, is_all_by_kernel};

/// Bytes of a ring.
pub const RING: usize = 8;

/// Which side acts.
pub type Side = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Write(Side, usize),
    Read(Side, usize),
    /// The writing thread is woken, or begins to wait.
    Serve(Side),
    Discard(Side),
    /// The reading thread gives the socket to somebody who reads from the kernel alone.
    Leave(Side),
    /// It sends to itself at most so many bytes that its writer has not sent.
    Deputise(Side, usize),
    /// The writing thread goes by kernel for good.
    Keep(Side),
    /// shutdown(SHUT_WR).
    Shut(Side),
    /// The process dies. The broker notices later.
    Die(Side),
    /// The same, while its reading thread sends to itself on the writer's behalf.
    DieOverSending(Side),
    Bury,
    /// The operator's detach and attach.
    Hold(bool),
    /// The side waits where it hears no doorbell.
    Away(Side, bool),
    /// Time passes.
    Pass(u64),
}

impl Step {
    pub fn from_bytes(bytes: &mut Input) -> Step {
        let side = bytes.below(2);
        match bytes.below(32) {
            0..=8 => Step::Write(side, 1 + bytes.below(2 * RING)),
            9..=17 => Step::Read(side, 1 + bytes.below(2 * RING)),
            18..=21 => Step::Serve(side),
            22 => Step::Discard(side),
            23 if bytes.below(4) == 0 => Step::Leave(side),
            23 => Step::Deputise(side, bytes.below(RING)),
            24 if bytes.below(4) == 0 => Step::Keep(side),
            24 => Step::Deputise(side, bytes.below(RING)),
            25 if bytes.below(3) == 0 => Step::Shut(side),
            26 if bytes.below(12) == 0 => Step::Die(side),
            26 if bytes.below(12) == 0 => Step::DieOverSending(side),
            25..=27 => Step::Bury,
            28 => Step::Hold(bytes.below(2) == 0),
            29 => Step::Away(side, bytes.below(2) == 0),
            _ => Step::Pass(PATIENCE / 2),
        }
    }
}

/// How a connection is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes that the kernel takes of one direction.
    pub room: usize,
    pub flip: Flip,
}

impl Setup {
    /// A kernel that takes as much as a ring, and no test aid.
    pub const PLAIN: Setup = Setup { room: RING, flip: Flip::NEVER };

    pub fn from_bytes(bytes: &mut Input) -> Setup {
        let room = [3, RING, 64][bytes.below(3)];
        let flip = if bytes.below(4) == 0 { Flip::every(1 + bytes.below(12) as u64) } else { Flip::NEVER };
        Setup { room, flip }
    }
}

pub struct World {
    pub wire: Arc<Wire>,
    pub senders: [Sender; 2],
    pub receivers: [Receiver; 2],
    /// Of the side that is gone.
    dead: Option<Side>,
    is_buried: bool,
    /// The side has read the end of the stream.
    has_read_end: [bool; 2],
    /// The side writes by kernel for good.
    is_kept: [bool; 2],
}

impl World {
    pub fn new(setup: Setup) -> World {
        let wire = Arc::new(Wire::new(RING, setup.room));
        World::of(wire, [0, 1].map(|side| Sender::new(side, setup.flip)), [0, 1].map(Receiver::new))
    }

    /// What threads have left.
    pub fn of(wire: Arc<Wire>, senders: [Sender; 2], receivers: [Receiver; 2]) -> World {
        World { wire, senders, receivers, dead: None, is_buried: false, has_read_end: [false; 2], is_kept: [false; 2] }
    }

    fn is_alive(&self, side: Side) -> bool {
        self.dead != Some(side)
    }

    fn living(&self) -> Vec<Side> {
        (0..2).filter(|side| self.is_alive(*side)).collect()
    }

    /// Those that may write still.
    fn writing(&self) -> Vec<Side> {
        self.living().into_iter().filter(|side| !self.senders[*side].is_shut()).collect()
    }

    /// One step. A dead side does nothing more, and nobody writes after shutdown.
    pub fn apply(&mut self, step: Step) {
        match step {
            Step::Bury => self.bury(),
            Step::Hold(is_held) => self.wire.hold(is_held),
            Step::Pass(time) => self.wire.pass(time),
            Step::Die(side) if self.dead.is_none() => self.die(side),
            Step::DieOverSending(side) if self.dead.is_none() && self.wire.half(1 - side).claim_sending() => {
                self.die(side)
            }
            Step::Die(_) | Step::DieOverSending(_) => {}
            Step::Write(side, _)
            | Step::Read(side, _)
            | Step::Serve(side)
            | Step::Discard(side)
            | Step::Leave(side)
            | Step::Deputise(side, _)
            | Step::Keep(side)
            | Step::Shut(side)
            | Step::Away(side, _) => {
                if self.is_alive(side) {
                    self.act(side, step);
                }
            }
        }
    }

    /// A step of a side that lives.
    fn act(&mut self, side: Side, step: Step) {
        let in_ring_to = self.senders[1 - side].only_in_ring_to;
        let (wire, sender, receiver) = (&self.wire, &mut self.senders[side], &mut self.receivers[side]);
        match step {
            Step::Write(_, _) if sender.is_shut() => {}
            Step::Write(_, n) => {
                let before = sender.writer.tx.ring;
                sender.write(wire, n);
                assert!(!self.is_kept[side] || sender.writer.tx.ring <= before, "side {side} is kept on the kernel");
            }
            Step::Read(_, n) => drop(self.read(side, n)),
            Step::Serve(_) => sender.serve(wire),
            Step::Discard(_) => drop(receiver.discard(wire)),
            // LIMITATIONS.md, "fork, exec and passed descriptors": what is in the ring only would be lost.
            Step::Leave(_) if in_ring_to > receiver.rx.pos() => {}
            Step::Leave(_) => receiver.leave(wire),
            Step::Deputise(_, n) => receiver.deputise(wire, n),
            Step::Keep(_) => {
                sender.keep(wire);
                self.is_kept[side] = true;
            }
            Step::Shut(_) => drop(sender.shut(wire)),
            Step::Away(_, is_away) => wire.set_away(side, is_away),
            _ => unreachable!("{step:?} is not a side's"),
        }
    }

    fn die(&mut self, side: Side) {
        self.dead = Some(side);
        self.wire.die(side);
    }

    fn bury(&mut self) {
        if let Some(side) = self.dead
            && !self.is_buried
        {
            self.is_buried = true;
            self.wire.bury(side);
        }
    }

    fn read(&mut self, side: Side, max: usize) -> Got {
        let got = self.receivers[side].read(&self.wire, max);
        let (written, read) = (self.senders[1 - side].writer.tx.pos(), self.receivers[side].rx.pos());
        assert!(read <= written, "side {side} has read {read} of {written} bytes");
        if got == Got::End {
            assert_eq!(read, written, "side {side} reads the end before the last byte");
            self.has_read_end[side] = true;
        } else if let Got::Bytes(_) = got {
            assert!(!self.has_read_end[side], "side {side} reads bytes after the end");
        }
        got
    }

    /// Everybody who lives does what is left to do, and reads what comes, until nothing changes.
    fn settle(&mut self) {
        self.bury();
        let mut quiet_turns = 0;
        for _ in 0..200 {
            let before = self.positions();
            for side in self.living() {
                self.senders[side].serve(&self.wire);
                if self.senders[side].is_shut() {
                    self.senders[side].shut(&self.wire);
                }
                while let Got::Bytes(_) = self.read(side, RING / 2 + 1) {}
            }
            quiet_turns = if self.positions() == before { quiet_turns + 1 } else { 0 };
            if quiet_turns == 3 {
                return; // what one side does without moving a byte may move the other
            }
        }
        panic!("the ends do not come to rest");
    }

    fn positions(&self) -> [(u64, u64, u64); 2] {
        [0, 1].map(|side| {
            let (tx, rx) = (&self.senders[side].writer.tx, &self.receivers[side].rx);
            (tx.socket, rx.pos(), rx.socket)
        })
    }

    /// Whatever happened: what was written arrives.
    pub fn check_rest(&mut self) {
        self.settle();
        for side in self.living() {
            self.check_arrived(side);
        }
    }

    /// The same, and the connection goes on as plain TCP would.
    pub fn check_end(&mut self) {
        self.check_rest();
        if self.dead.is_some() {
            return self.check_survivor();
        }
        self.check_goes_on();
        self.check_hold();
        self.check_return();
    }

    /// All that `side` can read has been read, and the end if there is one.
    fn check_arrived(&self, side: Side) {
        let (sender, receiver) = (&self.senders[1 - side], &self.receivers[side]);
        assert_eq!(receiver.rx.pos(), sender.writer.tx.pos(), "all has arrived at side {side}");
        let is_over = sender.has_finished || !self.is_alive(1 - side);
        assert_eq!(self.has_read_end[side], is_over, "the end of what side {side} reads");
        if self.dead.is_none() {
            let counts = (receiver.rx.socket, self.wire.queued(1 - side));
            assert_eq!(counts, (sender.writer.tx.socket, 0), "nothing is left in the kernel");
            let (tx, rx) = (&sender.writer.tx, &receiver.rx);
            assert_eq!((rx.kernel + rx.ring, tx.kernel() + tx.ring), (rx.pos(), tx.pos()));
        }
    }

    /// A writer whose reader is gone is told of that, or would have been by plain TCP: it does not wait.
    fn check_survivor(&mut self) {
        let side = 1 - self.dead.expect("somebody is dead");
        let sender = &mut self.senders[side];
        if sender.is_shut() {
            return;
        }
        for _ in 0..4 * RING {
            sender.write(&self.wire, 1);
        }
        assert!(sender.is_refused, "side {side} writes to nobody");
        assert_ne!(sender.course(), Course::Ring);
    }

    /// Who may write can, in turns, and it arrives.
    fn check_goes_on(&mut self) {
        for _ in 0..3 {
            for side in self.writing() {
                let n = self.senders[side].write(&self.wire, 2);
                assert_eq!(n, 2, "side {side} has room, since everything was read");
            }
            self.settle();
            (0..2).for_each(|side| self.check_arrived(side));
        }
    }

    /// While the operator holds the connection nothing goes by ring.
    fn check_hold(&mut self) {
        self.wire.hold(true);
        self.settle();
        for side in self.writing() {
            assert_ne!(self.senders[side].course(), Course::Ring, "side {side} is held");
            let ring = self.senders[side].writer.tx.ring;
            self.senders[side].write(&self.wire, 1);
            assert_eq!(self.senders[side].writer.tx.ring, ring, "side {side} begins a stretch while it is held");
        }
        self.settle();
        (0..2).for_each(|side| self.check_arrived(side));
        self.wire.hold(false);
    }

    /// Whether `side` could give the connection back to the kernel.
    pub fn is_all_by_kernel(&mut self, side: Side) -> bool {
        let (sender, receiver) = (&self.senders[side], &mut self.receivers[side]);
        let queued = self.wire.queued(1 - side) as u64;
        is_all_by_kernel(&mut receiver.rx, &sender.writer.tx, self.wire.half(1 - side), queued)
    }

    /// For good: both ends can give the connection back to the kernel, and nothing is missing there.
    fn check_return(&mut self) {
        for side in 0..2 {
            self.senders[side].keep(&self.wire);
        }
        self.settle();
        for side in 0..2 {
            let half = self.wire.half(1 - side);
            half.withdraw_readiness();
            half.hint_freeze();
        }
        self.settle();
        for side in 0..2 {
            assert!(self.is_all_by_kernel(side), "side {side} could be the kernel's alone");
            assert!(self.wire.phases[side].go(Event::Demote).is_some());
        }
        (0..2).for_each(|side| self.check_arrived(side));
    }
}

/// The steps, one after the other, and what must hold after them.
pub fn as_plain_tcp(setup: Setup, steps: impl IntoIterator<Item = Step>) {
    let mut world = World::new(setup);
    for step in steps {
        world.apply(step);
    }
    world.check_end();
}

/// Calls `check` with every order of the steps of these threads. How many orders there are.
pub fn every_order(threads: &[&[Step]], check: &mut impl FnMut(&[Step])) -> u64 {
    fn go_on(threads: &mut Vec<&[Step]>, order: &mut Vec<Step>, check: &mut impl FnMut(&[Step])) -> u64 {
        let mut orders = 0;
        for i in 0..threads.len() {
            let steps = threads[i];
            if let Some((first, left)) = steps.split_first() {
                threads[i] = left;
                order.push(*first);
                orders += go_on(threads, order, check);
                order.pop();
                threads[i] = steps;
            }
        }
        if threads.iter().all(|steps| steps.is_empty()) {
            check(order);
            orders = 1;
        }
        orders
    }
    go_on(&mut threads.to_vec(), &mut Vec::new(), check)
}

pub fn run(data: &[u8]) {
    let (setup, steps) = from_bytes(data);
    as_plain_tcp(setup, steps);
}

/// What a fuzzer's bytes stand for.
pub fn from_bytes(data: &[u8]) -> (Setup, Vec<Step>) {
    let mut bytes = Input::new(data);
    let setup = Setup::from_bytes(&mut bytes);
    (setup, std::iter::from_fn(|| (!bytes.is_empty()).then(|| Step::from_bytes(&mut bytes))).collect())
}
