//! One actor: descriptors in slots, threads that make calls, and calls that have not returned.

use std::ffi::CString;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use libc::c_int;
use sidestep_posix::sys::{self, errno::Errno, signal};

use super::channel::{Answer, Ask, Channel, Hold};
use super::pending::{self, Pending};
use super::place::{Context, place};
use super::worker::{HARNESS_FDS, Job, Outcome, Worker, block_signals};
use super::{bulk, links};
use crate::calls::{self, Shape};
use crate::program::{Act, Arg, Call, Handling, SLOTS, Slot};
use crate::trace::Line;

/// Threads of an actor: one fewer than this many calls can block at once.
const WORKERS: usize = 6;
/// Number of a slot that was never filled. No process has so many descriptors.
const NEVER: i32 = 99_999;
/// How much longer than its timeout a finite wait may take.
const TOLERANCE_MS: u128 = 400;

pub struct Actor {
    pub id: u8,
    pub slots: [i32; SLOTS],
    open: [bool; SLOTS],
    workers: Vec<Worker>,
    pending: Vec<Pending>,
    listener: Option<(i32, bool)>,
}

/// Signals for which this process has a handler.
static HANDLED: AtomicU64 = AtomicU64::new(0);
const COUNTED: [c_int; 3] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE];

fn counts() -> [usize; 3] {
    COUNTED.map(signal::count)
}

impl Actor {
    pub fn new(id: u8) -> Actor {
        block_signals();
        let workers = (0..WORKERS).map(|_| Worker::new()).collect();
        Actor { id, slots: [NEVER; SLOTS], open: [false; SLOTS], workers, pending: vec![], listener: None }
    }

    /// Executes commands until the channel is closed.
    pub fn serve(mut self, mut channel: Channel) {
        while let Some(ask) = channel.hear::<Ask>() {
            let answer = self.answer(ask);
            if channel.say(&answer).is_err() {
                return;
            }
        }
    }

    pub fn answer(&mut self, ask: Ask) -> Answer {
        let held = |it: &Actor| it.pending.iter().filter_map(|p| p.hold).collect();
        let answer = self.obey(ask);
        Answer { held: held(self), ..answer }
    }

    fn obey(&mut self, ask: Ask) -> Answer {
        let value = |value| Answer { value, ..Answer::default() };
        let lines = |lines| Answer { lines, ..Answer::default() };
        match ask {
            Ask::Do { step, act, blocks, fills, held } => self.step(step, act, blocks, &fills, &held),
            Ask::Settle { after, expected } => lines(self.settle(after, &expected)),
            Ask::Listen { v6 } => {
                let (fd, port) = links::listen(v6);
                self.listener = Some((fd, v6));
                value(port.into())
            }
            Ask::Connect { slot, v6, port } => {
                self.put(slot, links::connect(v6, port));
                value(0)
            }
            Ask::Accept { slot } => {
                let (listener, _) = self.listener.take().expect("a listener");
                let fd = links::accept(listener);
                self.put(slot, fd);
                value(0)
            }
            Ask::Port { slot } => value(sys::net::getsockname(self.slots[slot as usize]).port().into()),
            Ask::WarmSend { slot } => value(links::warm_send(self.slots[slot as usize])),
            Ask::WarmRecv { slot } => value(links::warm_recv(self.slots[slot as usize])),
            Ask::Consumed { slot } => value(links::consumed(self.slots[slot as usize])),
            Ask::Fork { child, meet } => value(self.fork(child, &meet).into()),
            Ask::Reap { pid } => value(reap(pid).into()),
            Ask::Finish { after } => lines(self.finish(after)),
            Ask::Leave { code } => sys::process::exit_now(code.into()),
        }
    }

    fn step(&mut self, step: usize, act: Act, blocks: Option<bool>, fills: &[usize], held: &[Hold]) -> Answer {
        let before = counts();
        let mut line = Line { step, at: self.id, ..Line::default() };
        let mut value = 0;
        match act {
            Act::Call(call) => self.call(step, call, blocks, held, &mut line),
            Act::Listen { slot, v6, nonblock, .. } => {
                let (fd, port) = links::listen_with(v6, nonblock);
                self.put(slot, fd);
                value = port.into();
                line.text = format!("fd {fd}");
            }
            Act::Make { slot, kind } => {
                let fds = links::make(kind);
                line.text = format!("fds {fds:?}");
                fds.into_iter().zip(slot..).for_each(|(fd, slot)| self.put(slot, fd));
            }
            Act::Close { slot } => {
                self.open[slot as usize] = false;
                line.text = format!("{:?}", sys::fds::close(self.slots[slot as usize]));
            }
            Act::Signal { signal } => line.text = self.signal(signal),
            Act::Handler { signal, how } => handle(signal, how),
            Act::Fill { slot } => (line.text, value) = bulk::fill(self.slots[slot as usize]),
            Act::Drain { slot } => (line.text, value) = bulk::drain(self.slots[slot as usize], fills),
            Act::Nap { ms } => std::thread::sleep(Duration::from_millis(ms.into())),
            Act::Pair { .. } | Act::Fork { .. } | Act::Exit { .. } | Act::Operator { .. } => {
                unreachable!("the coordinator's own steps")
            }
        }
        for (signal, (before, now)) in COUNTED.iter().zip(before.iter().zip(counts())) {
            if now != *before {
                line.text += &format!(", {} times signal {signal}", now - before);
            }
        }
        Answer { lines: vec![line], value, held: vec![] }
    }

    fn call(&mut self, step: usize, call: Call, blocks: Option<bool>, held: &[Hold], line: &mut Line) {
        let shape = calls::shape(&call.name);
        let fd = match call.args.first() {
            Some(Arg::Fd(slot)) => self.slots[*slot as usize],
            _ => -1,
        };
        let inode = if shape == Shape::Other { None } else { links::inode(fd) };
        let hold = inode.map(|inode| Hold { inode, sends: shape == Shape::Sends, step });
        if let Some(other) =
            held.iter().find(|h| hold.is_some_and(|mine| (mine.inode, mine.sends) == (h.inode, h.sends)))
        {
            line.text = format!("left out: step {} waits for the same", other.step);
            return;
        }
        let Some(job_of) = function(&call) else {
            line.text = "left out: libc has no such call".into();
            return;
        };
        let Some(worker) = self.workers.pop() else {
            line.text = "left out: no thread is left".into();
            return;
        };
        let context = Context { slots: &self.slots, step, sends: shape == Shape::Sends };
        let placed: Vec<_> = call.args.iter().map(|arg| place(arg, &context)).collect();
        let mut words = [0; 7];
        let first = usize::from(call.raw);
        words[0] = job_of.1;
        placed.iter().zip(&mut words[first..]).for_each(|(p, word)| *word = p.word);
        let wait_ms = call.wait_ms.or_else(|| links::own_timeout_ms(&call.name, fd));
        worker.start(Job { function: job_of.0, words, wide: job_of.2 });
        let blocks = if wait_ms.is_some() { Some(false) } else { blocks };
        let outcome = pending::over_or_asleep(&worker, blocks);
        let shuts = call.name == "shutdown";
        let pending = Pending { step, call, placed, worker, hold };
        match outcome {
            None => {
                line.blocks = true;
                self.pending.push(pending);
            }
            Some(outcome) => {
                *line = self.over(pending, &outcome);
                if let Some(ms) = wait_ms {
                    line.text += in_time(&outcome, ms);
                }
                if shape == Shape::Sends {
                    links::until_sent(fd);
                }
                if shuts {
                    links::until_acknowledged(fd);
                }
            }
        }
    }

    /// A call has returned.
    fn over(&mut self, pending: Pending, outcome: &Outcome) -> Line {
        let line = pending.line(self.id, outcome);
        if let (Some(slot), 0..) = (pending.call.into, outcome.ret) {
            self.put(slot, outcome.ret as i32);
        }
        let closes = ["close", "__close", "close_range"].contains(&pending.call.name.as_str());
        if let (true, 0, Some(Arg::Fd(slot))) = (closes, outcome.ret, pending.call.args.first()) {
            self.open[*slot as usize] = false;
        }
        self.workers.push(pending.worker);
        line
    }

    /// Stores a new descriptor in a slot. A descriptor that the slot held is closed, as the program would do.
    fn put(&mut self, slot: Slot, fd: i32) {
        let slot = slot as usize;
        if self.open[slot] && self.slots[slot] != fd {
            let _ = sys::fds::close(self.slots[slot]);
        }
        // The number may have been closed past its slot, and be in use again: the latest slot owns it.
        (0..SLOTS).filter(|&other| self.slots[other] == fd).for_each(|other| self.open[other] = false);
        (self.slots[slot], self.open[slot]) = (fd, true);
    }

    fn settle(&mut self, after: usize, expected: &[usize]) -> Vec<Line> {
        if self.pending.is_empty() {
            return vec![];
        }
        let over = pending::settle(&mut self.pending, expected);
        let late = |(p, outcome): (Pending, Outcome)| Line { after: Some(after), ..self.over(p, &outcome) };
        over.into_iter().map(late).collect()
    }

    fn signal(&mut self, signal: c_int) -> String {
        if HANDLED.load(Relaxed) & 1 << signal == 0 {
            return "left out: no handler".into();
        }
        let Some(first) = self.pending.first() else { return "left out: nobody waits".into() };
        let before = signal::count(signal);
        first.worker.signal(signal);
        let started = Instant::now();
        while signal::count(signal) == before && started.elapsed().as_millis() < 100 {
            std::thread::sleep(Duration::from_micros(200));
        }
        format!("for step {}", first.step)
    }

    fn fork(&mut self, child: u8, meet: &str) -> i32 {
        // SAFETY: the child has this thread only. The other threads wait for jobs or inside calls, and hold no lock.
        match unsafe { libc::fork() } {
            0 => self.be_child(child, meet),
            pid => pid,
        }
    }

    fn be_child(&mut self, id: u8, meet: &str) -> ! {
        sys::process::die_with_parent();
        // SAFETY: descriptors of the harness, none of which the child uses.
        let _ =
            unsafe { sidestep_sys::call(libc::SYS_close_range, [HARNESS_FDS as usize, u32::MAX as usize, 0, 0, 0, 0]) };
        let channel = meet_at(meet);
        let mut actor = Actor::new(id);
        (actor.slots, actor.open) = (self.slots, self.open);
        actor.serve(channel);
        sys::process::exit_now(0)
    }

    /// Ends the program: shuts the sockets down, so that calls which still wait return.
    fn finish(&mut self, after: usize) -> Vec<Line> {
        for slot in 0..SLOTS {
            if self.open[slot] {
                let _ = sys::net::shutdown(self.slots[slot], libc::SHUT_RDWR);
            }
        }
        self.settle(after, &[])
    }
}

/// A connection to the coordinator, for a child or another process.
pub fn meet_at(path: &str) -> Channel {
    Channel::new(UnixStream::connect(path).unwrap_or_else(|e| panic!("{path}: {e}")))
}

fn in_time(outcome: &Outcome, ms: u32) -> &'static str {
    let nothing = outcome.ret == 0 || outcome.ret < 0 && [libc::EAGAIN, libc::EINTR].contains(&outcome.errno);
    match outcome.took.as_millis() {
        _ if !nothing => "",
        took if took + 2 < ms.into() => ", early",
        took if took > u128::from(ms) + TOLERANCE_MS => ", late",
        _ => ", in time",
    }
}

/// The call's address, its system call's number, and the width of its result.
fn function(call: &Call) -> Option<(usize, usize, bool)> {
    let known = calls::find(&call.name)?;
    let name = CString::new(if call.raw { "syscall" } else { known.name }).expect("no NUL");
    // SAFETY: a terminated name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
    match known.number {
        _ if address == 0 => None,
        Some(number) if call.raw => Some((address, number as usize, true)),
        None if call.raw => None,
        _ => Some((address, 0, known.wide)),
    }
}

fn handle(signal: c_int, how: Handling) {
    HANDLED.fetch_or(1 << signal, Relaxed);
    match how {
        Handling::Restart => signal::count_signal(signal, libc::SA_RESTART),
        Handling::Interrupt => signal::count_signal(signal, 0),
        Handling::Ignore => {
            HANDLED.fetch_and(!(1 << signal), Relaxed);
            // SAFETY: SIG_IGN is no function.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
}

fn reap(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status is a live integer.
    while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 {
        assert_eq!(Errno::last(), sys::errno::EINTR, "waitpid");
    }
    status
}
