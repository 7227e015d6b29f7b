//! What must hold of a connection in the end, whatever happened to it before.
#![allow(dead_code)] // each engine uses its part

use super::pair_plain::Reader;
use super::pair_receiver::Got;
use super::pair_steps::{RING, Side};
use super::pair_world::{Life, World};
use sidestep_conn::{Course, Event, is_all_by_kernel};

impl World {
    /// Everybody who lives does what is left to do, and reads what comes, until nothing changes.
    fn settle(&mut self) {
        self.bury();
        let mut quiet_turns = 0;
        for _ in 0..200 {
            let before = self.positions();
            for side in 0..2 {
                self.go_on_closing(side);
            }
            for side in self.living() {
                self.senders[side].serve(&self.wire);
                self.go_on_shutting(side);
                while let Got::Bytes(_) = self.read(side, RING / 2 + 1) {}
            }
            quiet_turns = if self.positions() == before { quiet_turns + 1 } else { 0 };
            if quiet_turns == 3 {
                return; // what one side does without moving a byte may move the other
            }
        }
        panic!("the ends do not come to rest");
    }

    fn positions(&self) -> [(u64, u64, u64, Life); 2] {
        [0, 1].map(|side| {
            let (tx, rx) = (&self.senders[side].writer.tx, &self.receivers[side].rx);
            (tx.socket, rx.pos(), rx.socket, self.life[side])
        })
    }

    fn is_reset(&self, side: Side) -> bool {
        self.wire.call(|kernel| kernel.is_reset(side))
    }

    /// Both ends are there, and nothing has broken the connection.
    fn is_whole(&self) -> bool {
        (0..2).all(|side| self.is_alive(side) && !self.is_reset(side))
    }

    /// Whatever happened: what was written arrives, or the program is told that it does not.
    pub fn check_rest(&mut self) {
        self.settle();
        for side in self.living() {
            self.check_arrived(side);
        }
    }

    /// The same, and the connection goes on as plain TCP would.
    pub fn check_end(&mut self) {
        self.check_rest();
        if !self.is_whole() {
            return self.living().into_iter().for_each(|side| self.check_survivor(side));
        }
        self.check_goes_on();
        self.check_hold();
        self.check_return();
    }

    /// All that `side` can read has been read, and the end if there is one.
    fn check_arrived(&mut self, side: Side) {
        let reader = Reader { is_shut: self.is_shut(side), is_empty: self.is_empty(side) };
        let last = self.last[side];
        self.plain.iter_mut().for_each(|plain| plain.check_rest(side, last, reader));
        if self.is_reset(side) {
            return assert_eq!(last, Got::End, "side {side} reads in the end, after a reset");
        }
        let (sender, receiver) = (&self.senders[1 - side], &self.receivers[side]);
        assert_eq!(receiver.rx.pos(), sender.writer.tx.pos(), "all has arrived at side {side}");
        let is_over = sender.has_finished || !self.is_alive(1 - side) || receiver.is_deaf;
        assert_eq!(last == Got::End, is_over, "the end of what side {side} reads");
        if self.is_whole() {
            let counts = (receiver.rx.socket, self.wire.call(|kernel| kernel.queued(side)));
            assert_eq!(counts, (sender.writer.tx.socket, 0), "nothing is left in the kernel");
            let (tx, rx) = (&sender.writer.tx, &receiver.rx);
            assert_eq!((rx.kernel + rx.ring, tx.kernel() + tx.ring), (rx.pos(), tx.pos()));
        }
    }

    /// A writer whose reader is gone is told of that, or would have been by plain TCP: it does not wait.
    fn check_survivor(&mut self, side: Side) {
        if self.senders[side].is_shut() {
            return;
        }
        for _ in 0..4 * RING {
            self.write(side, 1);
        }
        let sender = &self.senders[side];
        assert!(sender.is_refused, "side {side} writes to nobody");
        assert_ne!(sender.course(), Course::Ring);
    }

    /// Who may write can, in turns, and it arrives. A side that has shut both ways answers with a reset.
    fn check_goes_on(&mut self) {
        for _ in 0..3 {
            for side in self.writing() {
                if self.has_shut_both(1 - side) {
                    self.write(side, 1);
                    return self.check_survivor(side);
                }
                let n = self.write(side, 2);
                assert_eq!(n, 2, "side {side} has room, since everything was read");
            }
            self.settle();
            (0..2).for_each(|side| self.check_arrived(side));
        }
    }

    /// While the operator holds the connection nothing goes by ring.
    fn check_hold(&mut self) {
        if !self.is_whole() {
            return;
        }
        self.wire.hold(true);
        self.settle();
        for side in self.writing() {
            assert_ne!(self.senders[side].course(), Course::Ring, "side {side} is held");
            let ring = self.senders[side].writer.tx.ring;
            self.write(side, 1);
            assert_eq!(self.senders[side].writer.tx.ring, ring, "side {side} begins a stretch while it is held");
        }
        self.settle();
        (0..2).for_each(|side| self.check_arrived(side));
        self.wire.hold(false);
    }

    /// Whether `side` could give the connection back to the kernel.
    pub fn is_all_by_kernel(&mut self, side: Side) -> bool {
        let (sender, receiver) = (&self.senders[side], &mut self.receivers[side]);
        let queued = self.wire.call(|kernel| kernel.queued(side)) as u64;
        is_all_by_kernel(&mut receiver.rx, &sender.writer.tx, self.wire.half(1 - side), queued)
    }

    /// For good: both ends can give the connection back to the kernel, and nothing is missing there.
    fn check_return(&mut self) {
        if !self.is_whole() {
            return;
        }
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
