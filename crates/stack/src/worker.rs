//! The worker: one thread that serves the broker, the programs' rings and the devices. Calls on programs' sockets are the executors'.

mod broker;
mod end;
mod paths;
mod refresh;
mod returned;
mod steps;

use crate::calls::Done;
use crate::choice::Choice;
use crate::control::Control;
use crate::custody::Custody;
use crate::due::Due;
use crate::error::{Error, failed};
use crate::executors::Executors;
use crate::frames::{Left, deliver, pass_on};
use crate::grace::Grace;
use crate::ledger::Ledger;
use crate::link::Served;
use crate::process::Process;
use crate::record;
use crate::room;
use crate::stage::Entry;
use crate::subject::{Subject, Terms};
use crate::timers::{Timers, now};
use crate::wait::Wait;
use refresh::Refresh;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io;
use rustix::thread::{CpuSet, sched_yield};
use rustix::time::Timespec;
use sidestep_abi::page::Page;
use sidestep_device::watch::Watch;
use sidestep_device::{Device, Queue};
use sidestep_ring::doorbell;
use sidestep_sys::tcp;
use sidestep_tcp::Tuple;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Frames that one turn receives from a queue.
const BATCH: usize = 64;
/// Microseconds between two turns after which frames may have piled up: this process was not running, or has slept.
const PILED_UP: u64 = 50_000;
/// The most batches that a turn then receives: as many frames as a queue has by default.
const BATCHES: usize = 64;
/// Turns between two looks at the broker's socket. The worker also looks before it sleeps.
const BROKER_TURNS: u32 = 32;
/// Turns between two looks at the keeper's socket, which has news only once.
const KEEPER_TURNS: u32 = 4096;
/// Microseconds that the worker sleeps at most: it looks whether the keeper has ended ([`Custody::is_over`]). A look every two seconds
/// takes no processor time worth mentioning, and while the worker sleeps nobody waits for it.
const REST: u64 = 2_000_000;

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

/// What the keeper gives its worker.
pub struct Given {
    /// The devices, at least one.
    pub devices: Vec<Device>,
    /// Connected to the operator's socket of the broker.
    pub broker: OwnedFd,
    /// Records. Those that are not free belong to connections of an earlier worker, which have not gone back yet.
    pub ledger: Ledger,
    /// The socket to the keeper.
    pub keeper: OwnedFd,
    /// The keeper.
    pub keeper_process: Process,
    /// The socket to the keeper's standby.
    pub standby: OwnedFd,
    /// The processors that its executors run on; None: as the worker.
    pub processors: Option<CpuSet>,
}

/// What the operator has said about the worker.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of a ring.
    pub ring_size: u32,
    /// What the worker does while nothing is to be done.
    pub wait: Wait,
    /// Which connections are carried.
    pub choice: Choice,
    /// Bytes of a message, on the average, above which the kernel carries a connection.
    pub longest_message: u64,
    /// Microseconds until a connection that has gone back may be taken again.
    pub pause: u64,
    /// Whether the worker says why connections are not taken, or given back.
    pub verbose: bool,
}

/// The worker.
pub struct Worker {
    devices: Vec<Device>,
    terms: Arc<Terms>,
    settings: Settings,
    control: Control,
    custody: Custody,
    grace: Grace,
    executors: Executors<Done>,
    watch: Watch,
    /// How often paths have changed.
    changes: u64,
    refresh: Refresh,
    /// When the kernel is next told which neighbours are in use.
    refresh_at: u64,
    ledger: Arc<Ledger>,
    /// Records that no connection uses.
    free: Vec<u32>,
    /// Records of an earlier worker's connections, as far as they have not gone back yet.
    held: Vec<u32>,
    links: HashMap<u32, Served>,
    /// Connections that this process has room for: their sockets, and their records.
    room: usize,
    /// Sockets that executors look at, before the broker is told anything of them, and those of no connection that are not closed yet.
    others: usize,
    /// Connections that the broker has been told the stack carries, by the number of its question.
    wanted: HashMap<u64, Subject>,
    /// By the number of their record.
    conns: Vec<Option<Entry>>,
    by_tuple: HashMap<Tuple, u32>,
    /// Connections that may have something to send.
    due: Due,
    timers: Timers,
    totals: Totals,
    turns: u32,
    /// When the last turn began.
    turned_at: u64,
}

impl Worker {
    /// Joins the broker by its operator's socket.
    pub fn new(given: Given, settings: Settings) -> Result<Worker, Error> {
        let Given { devices, broker, ledger, keeper, keeper_process, standby, processors } = given;
        let control = Control::join(broker, settings.ring_size).map_err(failed("join the broker"))?;
        let custody = Custody::new(keeper, keeper_process, standby);
        custody.lend_claims(&devices).map_err(Error::KeeperGone)?;
        let ledger = Arc::new(ledger);
        let mut held = ledger.touched().map_err(failed("look for records in use"))?;
        record::freed(&ledger, &mut held);
        Ok(Worker {
            terms: Arc::new(terms(&devices, &settings)),
            room: room::sockets(devices.iter().map(|device| device.queues.len()).sum()).min(ledger.records() as usize),
            others: 0,
            devices,
            settings,
            control,
            custody,
            free: (0..ledger.records()).rev().filter(|number| held.binary_search(number).is_err()).collect(),
            held,
            conns: Vec::new(),
            ledger,
            grace: Grace::start().map_err(failed("start a thread"))?,
            executors: Executors::start(processors).map_err(failed("start a thread"))?,
            watch: Watch::open().map_err(Error::Watch)?,
            changes: 0,
            refresh: Refresh::start().map_err(failed("start a thread"))?,
            refresh_at: 0,
            links: HashMap::new(),
            wanted: HashMap::new(),
            by_tuple: HashMap::new(),
            due: Due::default(),
            timers: Timers::default(),
            totals: Totals::default(),
            turns: 0,
            turned_at: 0,
        })
    }

    /// Serves until the keeper wants it to end, or is gone, and gives everything back.
    pub fn run(&mut self) -> Result<Totals, Error> {
        let result = match self.serve() {
            Err(Error::Over | Error::KeeperGone(_)) => Ok(()),
            other => other,
        };
        self.give_all_back();
        result.map(|()| self.totals)
    }

    /// Says that this process gives nothing back any more. The keeper ends it.
    pub fn leave(&mut self) {
        // Another stack may drive them, although an executor may still sleep.
        self.devices.clear();
        self.custody.end();
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut idle_since: Option<Instant> = None;
        loop {
            if self.turn()? {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() < self.settings.wait.spins() {
                sched_yield();
                continue;
            }
            self.sleep()?;
            idle_since = None;
        }
    }

    /// Does what is there to be done. False: nothing was.
    fn turn(&mut self) -> Result<bool, Error> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(KEEPER_TURNS) && self.custody.is_over() {
            return Err(Error::Over);
        }
        let mut has_worked = self.turns.is_multiple_of(BROKER_TURNS) && (self.hear_broker()? | self.hear_changes()?);
        let time = now();
        has_worked |= self.hear_executors(time);
        self.catch_up(time);
        self.hear_programs();
        while let Some(id) = self.timers.pop(time) {
            self.due.insert(id);
        }
        // One that finds no free frame is due again, and must not be waited for: frames get free by the kick.
        for _ in 0..self.due.len() {
            has_worked = true;
            self.due.pop().into_iter().for_each(|id| self.advance(id, time));
        }
        self.kick();
        Ok(has_worked)
    }

    fn kick(&mut self) {
        for queue in self.devices.iter_mut().flat_map(|device| &mut device.queues) {
            // What a device that is down does not send is sent again. That it is down is heard as a change.
            let _ = queue.sender.kick();
        }
    }

    fn sleep(&mut self) -> Result<(), Error> {
        if self.custody.is_over() {
            return Err(Error::Over);
        }
        if self.hear_broker()? || self.hear_changes()? {
            return Ok(());
        }
        doorbell::arm(self.links.values().map(|served| served.link.doorbell()));
        if self.links.values().any(|served| doorbell::is_ready(served.link.doorbell())) {
            return Ok(());
        }
        let us = self.timers.next().map_or(REST, |at| at.saturating_sub(now()).min(REST));
        let timeout = Timespec { tv_sec: (us / 1_000_000) as i64, tv_nsec: (us % 1_000_000 * 1000) as i64 };
        let (broker, bell, news) = (self.control.news(), self.control.doorbell(), self.grace.news());
        let done = self.executors.news();
        let mut fds: Vec<PollFd> = [broker, bell, news, self.custody.news(), self.watch.as_fd(), done]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .into();
        let queues = self.devices.iter().flat_map(|device| &device.queues);
        fds.extend(queues.map(|queue: &Queue| PollFd::new(queue, PollFlags::IN)));
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(io::Errno::INTR) => {}
            Err(error) => return Err(failed("wait")(error)),
        }
        self.links.values().for_each(|served| doorbell::disarm(served.link.doorbell()));
        if fds[5].revents().contains(PollFlags::IN) {
            self.executors.hush();
        }
        if fds[2].revents().contains(PollFlags::IN) {
            self.grace.hush();
        }
        if fds[1].revents().contains(PollFlags::IN) {
            self.control.hush();
        }
        Ok(())
    }

    /// Hears frames before timers are looked at. After a pause all that have come are heard: otherwise what has been acknowledged
    /// meanwhile would count as lost.
    fn catch_up(&mut self, time: u64) {
        let pause = time.saturating_sub(std::mem::replace(&mut self.turned_at, time));
        let most = if pause > PILED_UP { BATCHES } else { 1 };
        for _ in 0..most {
            if !self.hear_frames(time) {
                break;
            }
        }
        if most > 1 {
            self.turned_at = now(); // to hear them is no pause, however long it took
        }
    }

    /// Returns whether there may be more: a queue had as many frames as one batch takes.
    fn hear_frames(&mut self, time: u64) -> bool {
        let (mut left, mut is_full) = (Vec::new(), false);
        let Self { devices, by_tuple, conns, due, .. } = self;
        for (device, queue) in
            devices.iter_mut().enumerate().flat_map(|(n, one)| one.queues.iter_mut().map(move |q| (n, q)))
        {
            let batch = queue.receiver.receive(BATCH);
            let mut heard = 0;
            for frame in batch.frames() {
                heard += 1;
                let joined = (frame.length() > frame.head().len()).then(|| frame.to_vec());
                let bytes = joined.as_deref().unwrap_or(frame.head());
                left.extend(deliver(bytes, by_tuple, conns, due, time).map(|left| (device, left)));
            }
            is_full |= heard == BATCH;
        }
        for (device, left) in left {
            match left {
                Left::Unknown(tuple, frame) => {
                    let Device { taken, injector, .. } = &self.devices[device];
                    pass_on(taken, injector, &tuple, &frame);
                }
                Left::End(id, cause) => self.end(id, cause),
            }
        }
        is_full
    }

    fn hear_programs(&mut self) {
        for served in self.links.values() {
            doorbell::poll(served.link.doorbell(), |slot| {
                if let Some(id) = served.conn(slot) {
                    self.due.insert(id);
                }
            });
        }
    }

    /// Counts something on the page that `sidestep status` shows.
    fn count(&self, what: impl FnOnce(&Page)) {
        if let Some(page) = self.control.page() {
            what(page);
        }
    }

    fn say(&self, what: &str) {
        if self.settings.verbose {
            tracing::info!("{what}");
        }
    }
}

fn terms(devices: &[Device], settings: &Settings) -> Terms {
    Terms {
        choice: settings.choice.clone(),
        devices: devices.iter().map(Device::index).collect(),
        namespace: tcp::namespace(devices[0].queues[0].as_fd().as_raw_fd()),
        longest_message: settings.longest_message,
    }
}
