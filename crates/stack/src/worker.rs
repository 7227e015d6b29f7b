//! The worker: one thread that serves the broker, the programs' rings and the device.

use crate::carried::Carried;
use crate::cause::Cause;
use crate::control::Control;
use crate::error::{Error, failed};
use crate::frames::deliver;
use crate::grace::Grace;
use crate::link::Link;
use crate::program::Program;
use crate::stage::{Conn, Stage};
use crate::subject::Subject;
use crate::timers::{Timers, now};
use crate::wait::Wait;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io;
use rustix::time::Timespec;
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::wire::Incoming;
use sidestep_device::{Device, Queue};
use sidestep_ring::doorbell;
use sidestep_tcp::{Checksums, Segment, Tuple, complete_checksum};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Frames that one turn receives from a queue.
const BATCH: usize = 64;
/// The broker is heard once in so many turns, and before the worker sleeps.
const BROKER_TURNS: u32 = 32;
/// Microseconds between looks at a program that is to enter its rings.
const LOOK: u64 = 200;
/// Microseconds until a program must have entered its rings once its packets are diverted.
const PATIENCE: u64 = 200_000;

/// What the stack has done since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Connections taken from the kernel.
    pub taken: u64,
    /// Connections given back.
    pub returned: u64,
    /// Connections that were shown and not taken.
    pub declined: u64,
}

/// The worker.
pub struct Worker {
    device: Device,
    wait: Wait,
    control: Control,
    grace: Grace,
    links: HashMap<u32, Rc<Link>>,
    /// Connections that the broker has been told the stack carries, by the number of its question.
    wanted: HashMap<u64, Subject>,
    conns: HashMap<u64, Conn>,
    next: u64,
    by_tuple: HashMap<Tuple, u64>,
    by_slot: HashMap<(u32, usize), u64>,
    /// Connections that may have something to send.
    due: BTreeSet<u64>,
    timers: Timers,
    totals: Totals,
    turns: u32,
    verbose: bool,
}

impl Worker {
    /// Joins the broker by its operator's socket.
    pub fn new(device: Device, broker: OwnedFd, ring_size: u32, wait: Wait, verbose: bool) -> Result<Worker, Error> {
        let control = Control::join(broker, ring_size).map_err(failed("join the broker"))?;
        Ok(Worker {
            device,
            wait,
            control,
            grace: Grace::start().map_err(failed("start a thread"))?,
            links: HashMap::new(),
            wanted: HashMap::new(),
            conns: HashMap::new(),
            next: 0,
            by_tuple: HashMap::new(),
            by_slot: HashMap::new(),
            due: BTreeSet::new(),
            timers: Timers::default(),
            totals: Totals::default(),
            turns: 0,
            verbose,
        })
    }

    /// Serves until `ends`, and gives everything back.
    pub fn run(&mut self, ends: &Arc<AtomicBool>) -> Result<Totals, Error> {
        let result = self.serve(ends);
        let all: Vec<u64> = self.conns.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(id, &Cause::Ending, None));
        result.map(|()| self.totals)
    }

    fn serve(&mut self, ends: &Arc<AtomicBool>) -> Result<(), Error> {
        let mut idle_since: Option<Instant> = None;
        while !ends.load(Relaxed) {
            if self.turn()? {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() < self.wait.spins() {
                std::hint::spin_loop();
                continue;
            }
            self.sleep()?;
            idle_since = None;
        }
        Ok(())
    }

    /// Does what is there to be done. False: nothing was.
    fn turn(&mut self) -> Result<bool, Error> {
        self.turns = self.turns.wrapping_add(1);
        let mut has_worked = self.turns.is_multiple_of(BROKER_TURNS) && self.hear_broker()?;
        has_worked |= self.hear_frames();
        has_worked |= self.hear_programs();
        let time = now();
        while let Some(id) = self.timers.pop(time) {
            self.due.insert(id);
        }
        has_worked |= !self.due.is_empty();
        while let Some(id) = self.due.pop_first() {
            self.advance(id);
        }
        for queue in &mut self.device.queues {
            queue.sender.kick()?;
        }
        Ok(has_worked)
    }

    fn sleep(&mut self) -> Result<(), Error> {
        if self.hear_broker()? {
            return Ok(());
        }
        doorbell::arm(self.links.values().map(|link| link.bell()));
        if self.links.values().any(|link| doorbell::is_ready(link.bell())) {
            return Ok(());
        }
        let left = self.timers.next().map(|at| at.saturating_sub(now()));
        let timeout =
            left.map(|us| Timespec { tv_sec: (us / 1_000_000) as i64, tv_nsec: (us % 1_000_000 * 1000) as i64 });
        let (broker, bell, news) = (self.control.news(), self.control.bell(), self.grace.news());
        let mut fds: Vec<PollFd> = [broker, bell, news].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into();
        fds.extend(self.device.queues.iter().map(|queue: &Queue| PollFd::new(queue, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(io::Errno::INTR) => {}
            Err(error) => return Err(failed("wait")(error)),
        }
        if fds[2].revents().contains(PollFlags::IN) {
            self.grace.hush();
        }
        if fds[1].revents().contains(PollFlags::IN) {
            self.control.hush();
        }
        Ok(())
    }

    // --- the broker ----------------------------------------------------------------------------------------------------

    fn hear_broker(&mut self) -> Result<bool, Error> {
        let mut has_heard = false;
        loop {
            match self.control.receive() {
                Incoming::Empty => return Ok(has_heard),
                Incoming::End => return Err(Error::BrokerGone),
                Incoming::Garbage { .. } => {}
                Incoming::Record(record) => self.hear(&record.msg, record.fd)?,
            }
            has_heard = true;
        }
    }

    fn hear(&mut self, msg: &Msg, fd: Option<OwnedFd>) -> Result<(), Error> {
        match (msg.kind(), fd) {
            (Some(Kind::Reject), _) => return Err(Error::Rejected(msg.arg)),
            (Some(Kind::Foreign), Some(socket)) => self.shown(msg.arg, socket),
            (Some(Kind::Link), Some(memory)) => match Link::new(&memory, msg) {
                Ok(link) => drop(self.links.insert(msg.link, Rc::new(link))),
                Err(error) => self.say(&format!("cannot map a link: {error}")),
            },
            (Some(Kind::PeerDoorbell), Some(eventfd)) => {
                if let Some(link) = self.links.get(&msg.link) {
                    link.set_bell(msg.place as usize, eventfd);
                }
            }
            (Some(Kind::Slot), None) => self.assigned(msg),
            (Some(Kind::Refused), None) => drop(self.wanted.remove(&msg.offer)),
            (Some(Kind::Unlink), None) => self.unlinked(msg.link),
            _ => {}
        }
        Ok(())
    }

    fn shown(&mut self, number: u64, socket: OwnedFd) {
        let examined = Subject::examine(socket, self.device.index());
        let declined = match examined {
            Ok(subject) => {
                self.wanted.insert(number, subject);
                None
            }
            Err(why) => {
                self.totals.declined += 1;
                self.say(&format!("not taken: {}", chain(&why)));
                Some(Reason::PeerAbsent)
            }
        };
        self.control.answer(number, declined);
    }

    fn assigned(&mut self, msg: &Msg) {
        let (place, slot) = ((msg.link, msg.side, msg.slot), msg.slot as usize);
        let link = self.links.get(&msg.link).cloned();
        let (Some(subject), Some(link)) = (self.wanted.remove(&msg.offer), link) else {
            return self.control.release(place);
        };
        let id = self.next;
        self.next += 1;
        self.by_tuple.insert(Tuple::new(subject.local, subject.remote), id);
        self.by_slot.insert((msg.link, slot), id);
        let stage = Stage::Assigned(Program::new(link, slot));
        self.conns.insert(id, Conn { subject, place, stage, held: Vec::new() });
        self.due.insert(id);
    }

    /// The program has ended, and the broker gives its link up.
    fn unlinked(&mut self, link: u32) {
        let gone: Vec<u64> = self.by_slot.iter().filter(|((of, _), _)| *of == link).map(|(_, id)| *id).collect();
        gone.into_iter().for_each(|id| self.end(id, &Cause::Left, None));
        self.links.remove(&link);
    }

    fn hear_frames(&mut self) -> bool {
        let (mut has_heard, mut left) = (false, Vec::new());
        let Self { device, by_tuple, conns, due, .. } = self;
        for queue in &mut device.queues {
            let batch = queue.receiver.receive(BATCH);
            has_heard |= !batch.is_empty();
            for frame in batch.frames() {
                let joined = (frame.length() > frame.head().len()).then(|| frame.to_vec());
                let bytes = joined.as_deref().unwrap_or(frame.head());
                let delivered = deliver(bytes, by_tuple, conns, due);
                left.extend(delivered.err().map(|whose| (whose, bytes.to_vec())));
            }
        }
        for (whose, frame) in left {
            match whose {
                Some((id, cause)) => self.end(id, &cause, Some(frame)),
                None => self.inject(frame),
            }
        }
        has_heard
    }

    fn inject(&self, mut frame: Vec<u8>) {
        if complete_checksum(&mut frame).is_ok() {
            // A frame that is lost is sent again.
            let _ = self.device.injector.inject(&frame);
        }
    }

    fn hear_programs(&mut self) -> bool {
        let mut found: Vec<u64> = Vec::new();
        for (&link, words) in &self.links {
            doorbell::poll(words.bell(), |slot| found.extend(self.by_slot.get(&(link, slot))));
        }
        let has_heard = !found.is_empty();
        self.due.extend(found);
        has_heard
    }

    /// Takes a connection as far as possible.
    fn advance(&mut self, id: u64) {
        let mut conns = std::mem::take(&mut self.conns);
        let result = conns.get_mut(&id).map_or(Ok(()), |conn| self.step(conn, id));
        self.conns = conns;
        if let Err(cause) = result {
            self.end(id, &cause, None);
        }
    }

    fn step(&mut self, conn: &mut Conn, id: u64) -> Result<(), Cause> {
        let time = now();
        let socket = conn.subject.socket.as_fd();
        match &mut conn.stage {
            Stage::Assigned(program) => {
                self.timers.set(id, Some(time + LOOK));
                if program.is_ready() {
                    self.device.taken.add(&sidestep_device::Tuple::new(conn.subject.local, conn.subject.remote))?;
                    let grace = self.grace.begin();
                    conn.stage.replace(|program| Stage::Diverted { program, grace, since: time });
                }
            }
            Stage::Diverted { program, grace, since } => {
                self.timers.set(id, Some(time + LOOK));
                let since = *since;
                if self.grace.has_passed(*grace) && program.begin(socket)? {
                    conn.stage.replace(|program| Stage::Entering { program, since });
                } else if time > since + PATIENCE {
                    return Err(Cause::Slow);
                }
            }
            Stage::Entering { program, since } => {
                self.timers.set(id, Some(time + LOOK));
                if program.has_entered(socket)? {
                    return self.take(conn, id, time);
                } else if time > *since + PATIENCE {
                    return Err(Cause::Slow);
                }
                program.notify();
            }
            Stage::Carried(carried) => {
                let queue = &mut self.device.queues[0];
                let mut frames = queue.sender.outgoing();
                let sent = carried.send(&mut frames, time);
                frames.submit();
                if !sent? {
                    self.due.insert(id);
                }
                self.timers.set(id, carried.deadline());
            }
            Stage::Moving => {}
        }
        Ok(())
    }

    fn take(&mut self, conn: &mut Conn, id: u64, time: u64) -> Result<(), Cause> {
        let mut failed = None;
        conn.stage.replace(|program| {
            match Carried::take(program, conn.subject.socket.as_fd(), &conn.subject.path, time) {
                Ok(carried) => Stage::Carried(Box::new(carried)),
                Err(failure) => {
                    let (program, cause) = *failure;
                    failed = Some(cause);
                    Stage::Entering { program, since: time }
                }
            }
        });
        if let Some(cause) = failed {
            return Err(cause);
        }
        self.totals.taken += 1;
        let Stage::Carried(carried) = &mut conn.stage else { return Ok(()) };
        for frame in std::mem::take(&mut conn.held) {
            if let Ok(segment) = Segment::parse(&frame, Checksums::MayBePartial) {
                carried.receive(&segment, time)?;
            }
        }
        self.due.insert(id);
        Ok(())
    }

    /// The stack no longer carries the connection. `frame`: the kernel is to judge it.
    fn end(&mut self, id: u64, cause: &Cause, frame: Option<Vec<u8>>) {
        let Some(conn) = self.conns.remove(&id) else { return };
        let Conn { subject, place, stage, held } = conn;
        self.say(&format!("{} back to the kernel: {}", subject.remote, chain(cause)));
        match stage {
            Stage::Carried(carried) => {
                self.totals.returned += 1;
                if let Err(error) = carried.give_back(subject.socket.as_fd()) {
                    eprintln!("sidestep-stack: {}: {}", subject.remote, chain(&error));
                }
            }
            Stage::Assigned(mut program)
            | Stage::Diverted { mut program, .. }
            | Stage::Entering { mut program, .. } => {
                program.give_up();
            }
            Stage::Moving => {}
        }
        // What fails here is the device's end.
        let _ = self.device.taken.remove(&sidestep_device::Tuple::new(subject.local, subject.remote));
        held.into_iter().chain(frame).for_each(|frame| self.inject(frame));
        self.by_tuple.remove(&Tuple::new(subject.local, subject.remote));
        self.by_slot.remove(&(place.0, place.2 as usize));
        self.timers.set(id, None);
        self.control.release(place);
    }

    fn say(&self, what: &str) {
        if self.verbose {
            eprintln!("sidestep-stack: {what}");
        }
    }
}
