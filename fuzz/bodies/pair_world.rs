//! Both ends of a connection, each with a thread that writes and one that reads, a broker, and what may happen to them, in any
//! order: the program sees what plain TCP would have shown it.
#![allow(dead_code)] // each engine uses its part

use super::engine::Arc;
use super::pair_kernel::{Error, Kernel};
use super::pair_plain::{Plain, Reader};
use super::pair_receiver::{Got, Receiver};
use super::pair_sender::Sender;
use super::pair_steps::{RING, Setup, Side, Step, from_bytes};
use super::pair_wire::Wire;
use sidestep_conn::{Ending, Phase};

/// What becomes of the program at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Life {
    #[default]
    Alive,
    /// It is in a call of shutdown or close that waits for the kernel.
    Shutting {
        read: bool,
    },
    Closing,
    /// It has closed the socket.
    Closed,
    /// It was killed.
    Dead,
}

pub struct World {
    pub wire: Arc<Wire>,
    pub senders: [Sender; 2],
    pub receivers: [Receiver; 2],
    pub life: [Life; 2],
    /// What the program would see without the library. None: what is lost in a reset depends on what has arrived.
    pub plain: Option<Plain>,
    is_buried: bool,
    /// What the side read last.
    pub last: [Got; 2],
    /// The side writes by kernel for good.
    is_kept: [bool; 2],
}

impl World {
    pub fn new(setup: Setup) -> World {
        let wire = Arc::new(Wire::new(RING, Kernel::new(setup.room, setup.window)));
        let world = World::of(wire, [0, 1].map(|side| Sender::new(side, setup.flip)), [0, 1].map(Receiver::new));
        World { plain: (setup.window >= setup.room).then(Plain::new), ..world }
    }

    /// What threads have left.
    pub fn of(wire: Arc<Wire>, senders: [Sender; 2], receivers: [Receiver; 2]) -> World {
        World {
            wire,
            senders,
            receivers,
            life: Default::default(),
            plain: None,
            is_buried: false,
            last: [Got::Nothing; 2],
            is_kept: [false; 2],
        }
    }

    /// Whether the program of this side could call something.
    pub fn is_alive(&self, side: Side) -> bool {
        matches!(self.life[side], Life::Alive | Life::Shutting { .. })
    }

    pub fn living(&self) -> Vec<Side> {
        (0..2).filter(|side| self.is_alive(*side)).collect()
    }

    /// Those that may write still.
    pub fn writing(&self) -> Vec<Side> {
        self.living().into_iter().filter(|side| !self.senders[*side].is_shut()).collect()
    }

    /// One step. A side that is dead or closed does nothing more, and nobody writes after shutdown.
    pub fn apply(&mut self, step: Step) {
        match (step, step.side()) {
            (Step::Bury, _) => self.bury(),
            (Step::Hold(is_held), _) => self.wire.hold(is_held),
            (Step::Pass(time), _) => self.wire.pass(time),
            (Step::Cut, _) if self.living().len() < 2 => {}
            (Step::Cut, _) => self.both_kernels(Kernel::cut),
            (Step::GiveUp(side), _) if self.life[side] == Life::Closing => {
                self.both_kernels(|kernel| kernel.abort(side));
                self.senders[side].announce_end(&self.wire);
                self.close_socket(side);
            }
            (Step::Serve(side), _) if self.life[side] == Life::Closing => self.go_on_closing(side),
            (Step::Die(side) | Step::DieOverSending(side), _)
                if !self.is_alive(side) || self.life.contains(&Life::Dead) => {}
            (Step::Die(side), _) => self.die(side),
            (Step::DieOverSending(side), _) if self.wire.half(1 - side).claim_sending() => self.die(side),
            (step, Some(side)) if self.is_alive(side) && !self.is_excepted(side, step) => self.act(side, step),
            _ => {}
        }
    }

    /// A step of a side that lives.
    fn act(&mut self, side: Side, step: Step) {
        let (wire, sender, receiver) = (&self.wire, &mut self.senders[side], &mut self.receivers[side]);
        match step {
            Step::Write(_, _) if sender.is_shut() => {}
            Step::Write(_, n) => {
                let before = sender.writer.tx.ring;
                self.write(side, n);
                let ring = self.senders[side].writer.tx.ring;
                assert!(!self.is_kept[side] || ring <= before, "side {side} is kept on the kernel");
            }
            Step::Read(_, n) => drop(self.read(side, n)),
            Step::Serve(_) => sender.serve(wire),
            Step::Discard(_) => drop(receiver.discard(wire)),
            Step::Demote(_) if matches!(wire.phases[side].phase(), Phase::Returning { .. }) => receiver.withdraw(wire),
            Step::Demote(_) => {}
            Step::Leave(_) => receiver.leave(wire),
            Step::Deputise(_, n) => receiver.deputise(wire, n),
            Step::Keep(_) => {
                sender.keep(wire);
                self.is_kept[side] = true;
            }
            Step::Shut(_) => self.shut(side, false),
            Step::ShutRead(_) if sender.has_finished || !sender.is_shut() => self.shut_read(side),
            Step::ShutRead(_) => {} // the same thread is in shutdown(SHUT_WR)
            Step::ShutBoth(_) => self.shut(side, true),
            Step::Linger(_) => self.both_kernels(|kernel| kernel.set_lingers(side)),
            Step::Close(_) => {
                self.senders[side].begin_to_shut();
                self.life[side] = Life::Closing;
                self.go_on_closing(side);
            }
            Step::Away(_, is_away) => wire.set_away(side, is_away),
            Step::GiveUp(_) | Step::DieOverSending(_) => {}
            _ => unreachable!("{step:?} is not a side's"),
        }
    }

    /// LIMITATIONS.md, "fork, exec and passed descriptors": bytes would be lost that are in the ring only, or that the kernel of a
    /// side that has shut both ways takes no more.
    fn is_excepted(&mut self, side: Side, step: Step) -> bool {
        let has_shut_both = self.has_shut_both(side);
        let rx = &mut self.receivers[side].rx;
        match step {
            Step::Leave(_) => has_shut_both,
            Step::Shut(_) | Step::ShutRead(_) | Step::ShutBoth(_) => {
                let queued = self.wire.call(|kernel| kernel.queued(side)) as u64;
                rx.on_its_way() > rx.news_in_kernel(self.wire.half(1 - side), queued)
            }
            _ => false,
        }
    }

    pub fn has_shut_both(&self, side: Side) -> bool {
        self.senders[side].is_shut() && self.receivers[side].is_deaf
    }

    /// What happens to the connection whatever carries it.
    fn both_kernels(&mut self, event: impl Fn(&mut Kernel)) {
        self.wire.call(&event);
        self.plain.iter_mut().for_each(|plain| event(plain.kernel()));
    }

    pub fn write(&mut self, side: Side, n: usize) -> usize {
        let result = self.senders[side].write(&self.wire, n);
        self.plain.iter_mut().for_each(|plain| plain.wrote(side, result));
        result.unwrap_or(0)
    }

    fn shut(&mut self, side: Side, read: bool) {
        if self.life[side] == Life::Alive {
            self.senders[side].begin_to_shut();
            self.receivers[side].is_deaf |= read;
            self.life[side] = Life::Shutting { read };
        }
        self.go_on_shutting(side);
    }

    /// shutdown(2) for writing: the bytes of the ring, then the end.
    pub fn go_on_shutting(&mut self, side: Side) {
        let Life::Shutting { read } = self.life[side] else { return };
        if self.senders[side].end_stream(&self.wire, Some(&mut self.receivers[side])) {
            self.life[side] = Life::Alive;
            self.both_kernels(|kernel| kernel.shut(side, read));
        }
    }

    fn shut_read(&mut self, side: Side) {
        self.receivers[side].is_deaf = true;
        if self.senders[side].has_finished {
            self.receivers[side].enter_last_ring(&self.wire);
            self.wire.half(side).set_shut();
        }
        self.both_kernels(|kernel| kernel.shut_read(side));
    }

    /// close(2): the same, and what is unread here resets the connection.
    pub fn go_on_closing(&mut self, side: Side) {
        if self.life[side] == Life::Closing && self.senders[side].end_stream(&self.wire, None) {
            self.close_socket(side);
        }
    }

    fn close_socket(&mut self, side: Side) {
        self.life[side] = Life::Closed;
        if self.receivers[side].close(&self.wire) {
            self.wire.call(|kernel| kernel.set_lingers(side));
        }
        self.wire.half(side).set_shut();
        self.both_kernels(|kernel| kernel.close(side));
    }

    fn die(&mut self, side: Side) {
        self.life[side] = Life::Dead;
        let has_unread = self.wire.call(|kernel| kernel.queued(side)) > 0;
        self.wire.call(|kernel| kernel.close(side));
        // What is in a ring only belongs to no end that the library knows of.
        let is_told = self.senders[1 - side].only_in_ring_to <= self.receivers[side].rx.pos();
        let is_told = is_told && !self.wire.half(side).has_fin();
        self.plain.iter_mut().for_each(|plain| plain.die(side, has_unread, is_told));
    }

    pub fn bury(&mut self) {
        if let Some(side) = self.life.iter().position(|life| *life == Life::Dead)
            && !self.is_buried
        {
            self.is_buried = true;
            self.wire.bury(side);
        }
    }

    pub fn read(&mut self, side: Side, max: usize) -> Got {
        let mut got = self.receivers[side].read(&self.wire, max);
        if got == Got::End && self.is_reset_by_death(side) {
            got = self.receivers[side].fails(self.wire.half(1 - side), Error::Reset);
        }
        let (written, read) = (self.senders[1 - side].writer.tx.pos(), self.receivers[side].rx.pos());
        assert!(read <= written, "side {side} has read {read} of {written} bytes");
        let (is_shut, is_empty) = (self.is_shut(side), self.is_empty(side));
        self.plain.iter_mut().for_each(|plain| plain.read(side, got, Reader { is_shut, is_empty }));
        self.last[side] = got;
        got
    }

    /// The peer has died with bytes of this end unread, and the program was not told of it.
    fn is_reset_by_death(&mut self, side: Side) -> bool {
        let (peer_ended, is_shut) = (self.wire.half(1 - side).has_fin(), self.is_shut(side));
        let (rx, writer, half) = (&self.receivers[side].rx, &mut self.senders[side].writer, self.wire.half(side));
        Ending { peer_ended, is_shut }.is_reset(|| rx.is_reset_due(|| writer.has_died_unread(half)))
    }

    pub fn is_shut(&self, side: Side) -> bool {
        self.senders[side].is_shut() || self.receivers[side].is_deaf
    }

    /// Nothing can be read now, by any carrier.
    pub fn is_empty(&self, side: Side) -> bool {
        let half = self.wire.half(1 - side);
        self.wire.call(|kernel| kernel.queued(side)) == 0 && self.receivers[side].rx.unread(half) == 0
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

pub fn run(data: &[u8]) {
    let (setup, steps) = from_bytes(data);
    as_plain_tcp(setup, steps);
}
