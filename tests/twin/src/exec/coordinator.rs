//! Tells the actors what to do, one step after another, and prints their answers.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::actor::Actor;
use super::channel::{Answer, Ask, Channel, Hold};
use crate::program::{Act, ActorId, Arg, Call, Slot, Step};
use crate::reference::Reference;
use crate::trace::{Line, Printed};

/// How the two sides of a program are laid out.
pub struct Layout<'a> {
    /// Directory for the sockets by which actors of other processes connect to us.
    pub scratch: &'a Path,
    /// The command of side 1; empty: both sides are in this process.
    pub side: &'a [String],
    /// Whether connections that are warmed up must go by ring afterwards: for the side that connects, and for the one that accepts.
    pub rings: [bool; 2],
    /// Whether there is a broker, which may hold sockets.
    pub broker: bool,
}

enum Seat {
    Here(Box<Actor>),
    There(Channel),
}

pub struct Coordinator<'a> {
    layout: Layout<'a>,
    reference: Reference,
    meeting: UnixListener,
    seats: BTreeMap<ActorId, Seat>,
    /// Number of calls of each actor that have not returned.
    pending: BTreeMap<ActorId, usize>,
    held: BTreeMap<ActorId, Vec<Hold>>,
    /// Parent and pid of each forked child.
    children: BTreeMap<ActorId, (ActorId, i32)>,
    side: Option<Child>,
    /// Ports of listeners by name, and all ports in the order in which they appeared.
    listeners: BTreeMap<u8, u16>,
    ports: Vec<String>,
    fills: Vec<usize>,
    detached: bool,
}

/// Round trips that warm a connection up: at least, and at most until it must go by ring.
const ROUNDS: u32 = 3;
const WARM_MS: u128 = 3000;

/// While an offer is under way the broker holds the socket, too, and closes it a moment after the program (LIMITATIONS:
/// "close() while an offer is under way"). Only the peer sees when that has happened.
const BROKER_CLOSES: Duration = Duration::from_millis(2);

/// Whether a step may end a connection.
fn closes(act: &Act) -> bool {
    match act {
        Act::Call(call) => call.into.is_some() || call.name.contains("close") || call.name.contains("dup"),
        Act::Pair { .. } | Act::Close { .. } | Act::Make { .. } | Act::Listen { .. } | Act::Exit { .. } => true,
        _ => false,
    }
}

/// Executes a program. Err: it could not be executed to the end.
pub fn run(steps: &[Step], layout: Layout, reference: Reference) -> Result<(), String> {
    let path = layout.scratch.join("meet");
    let meeting = UnixListener::bind(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut it = Coordinator {
        layout,
        reference,
        meeting,
        seats: BTreeMap::new(),
        pending: BTreeMap::new(),
        held: BTreeMap::new(),
        children: BTreeMap::new(),
        side: None,
        listeners: BTreeMap::new(),
        ports: vec![],
        fills: vec![],
        detached: false,
    };
    it.seats.insert(0, Seat::Here(Box::new(Actor::new(0))));
    it.seat_side()?;
    for (i, step) in steps.iter().enumerate() {
        it.step(i, step)?;
        if it.layout.broker && closes(&step.act) {
            std::thread::sleep(BROKER_CLOSES);
        }
        it.settle(i);
    }
    it.end(steps.len())
}

fn print(printed: &Printed) {
    let line = serde_json::to_string(printed).expect("it is JSON") + "\n";
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("standard output");
}

impl Coordinator<'_> {
    fn seat_side(&mut self) -> Result<(), String> {
        let Some((program, args)) = self.layout.side.split_first() else {
            self.seats.insert(1, Seat::Here(Box::new(Actor::new(1))));
            return Ok(());
        };
        let mut command = Command::new(program);
        command.args(args).arg("--meet").arg(self.layout.scratch.join("meet"));
        self.side = Some(command.spawn().map_err(|e| format!("{program}: {e}"))?);
        let channel = self.meet()?;
        self.seats.insert(1, Seat::There(channel));
        Ok(())
    }

    fn meet(&self) -> Result<Channel, String> {
        let (stream, _) = self.meeting.accept().map_err(|e| format!("an actor does not come: {e}"))?;
        Ok(Channel::new(stream))
    }

    /// Sends a command to an actor. None: there is no such actor, or it is gone.
    fn ask(&mut self, at: ActorId, ask: Ask) -> Option<Answer> {
        let answer: Option<Answer> = match self.seats.get_mut(&at)? {
            Seat::Here(actor) => Some(actor.answer(ask)),
            Seat::There(channel) => channel.say(&ask).ok().and_then(|()| channel.hear()),
        };
        match &answer {
            Some(answer) => drop(self.held.insert(at, answer.held.clone())),
            None => {
                self.seats.remove(&at);
                self.pending.remove(&at);
                self.held.remove(&at);
            }
        }
        answer
    }

    fn value(&mut self, at: ActorId, ask: Ask) -> Option<i64> {
        self.ask(at, ask).map(|answer| answer.value)
    }

    fn step(&mut self, i: usize, step: &Step) -> Result<(), String> {
        let mut line = Line { step: i, at: step.at, ..Line::default() };
        if !self.seats.contains_key(&step.at) {
            line.text = "left out: no such actor".into();
            self.tell(line);
            return Ok(());
        }
        match &step.act {
            Act::Pair { a, b, v6, warm } => line.text = self.pair(step.at, *a, *b, *v6, *warm).unwrap_or("gone").into(),
            Act::Fork { child } => line.text = self.fork(step.at, *child)?,
            Act::Exit { code } => line.text = self.exit(step.at, *code),
            Act::Operator { detach } => self.operator(*detach),
            act => {
                self.other(i, step.at, act);
                return Ok(());
            }
        }
        self.tell(line);
        Ok(())
    }

    /// A step that one actor executes alone.
    fn other(&mut self, step: usize, at: ActorId, act: &Act) {
        let act = self.resolved(act);
        let (blocks, fills) = (self.reference.blocks(step), self.fills.clone());
        let held = self.held.values().flatten().copied().collect();
        let Some(answer) = self.ask(at, Ask::Do { step, act: act.clone(), blocks, fills, held }) else {
            return self.tell(Line { step, at, text: "the actor is gone".into(), ..Line::default() });
        };
        match act {
            Act::Fill { .. } if answer.value > 0 => self.fills.push(answer.value as usize),
            Act::Drain { .. } => self.fills.retain(|&n| n as i64 != answer.value),
            Act::Listen { name, .. } => drop(self.listeners.insert(name, answer.value as u16)),
            _ => {}
        }
        for line in answer.lines {
            *self.pending.entry(at).or_default() += usize::from(line.blocks);
            self.tell(line);
        }
    }

    /// The step with the ports of listeners filled in.
    fn resolved(&self, act: &Act) -> Act {
        let mut act = act.clone();
        if let Act::Call(Call { args, .. }) = &mut act {
            for arg in args {
                if let Arg::Address { name, port, .. } = arg {
                    *port = self.listeners.get(name).copied().unwrap_or(1);
                }
            }
        }
        act
    }

    fn tell(&mut self, mut line: Line) {
        while let Some(from) = line.text.find("port<") {
            let to = from + line.text[from..].find('>').expect("it is closed");
            let port = line.text[from + 5..to].to_owned();
            let known = self.ports.iter().position(|p| *p == port);
            let number = known.unwrap_or_else(|| {
                self.ports.push(port);
                self.ports.len() - 1
            });
            line.text.replace_range(from..=to, &format!("port #{number}"));
        }
        print(&Printed::Line(line));
    }

    fn settle(&mut self, after: usize) {
        let waiting: Vec<ActorId> = self.pending.iter().filter(|(_, n)| **n > 0).map(|(at, _)| *at).collect();
        for at in waiting {
            let expected = self.reference.over_after(after, at);
            let Some(answer) = self.ask(at, Ask::Settle { after, expected }) else { continue };
            *self.pending.entry(at).or_default() -= answer.lines.len();
            answer.lines.into_iter().for_each(|line| self.tell(line));
        }
    }

    fn pair(&mut self, connects: ActorId, a: Slot, b: Slot, v6: bool, warm: bool) -> Option<&'static str> {
        let (from, to) = if connects == 0 { ((0, a), (1, b)) } else { ((1, b), (0, a)) };
        let port = self.value(to.0, Ask::Listen { v6 })? as u16;
        self.value(from.0, Ask::Connect { slot: from.1, v6, port })?;
        self.value(to.0, Ask::Accept { slot: to.1 })?;
        if warm {
            return self.warm(from, to);
        }
        Some("connected")
    }

    /// Makes round trips until each end has received one by ring, if rings are to carry.
    fn warm(&mut self, a: (ActorId, Slot), b: (ActorId, Slot)) -> Option<&'static str> {
        let started = Instant::now();
        let must = self.layout.rings != [false; 2] && !self.detached;
        let (mut round, mut by_ring) = (0, self.layout.rings.map(|must| !must));
        loop {
            let before = self.consumed(a, b)?;
            for (from, to) in [(a, b), (b, a)] {
                let failed = self.value(from.0, Ask::WarmSend { slot: from.1 })? != 0
                    || self.value(to.0, Ask::WarmRecv { slot: to.1 })? != 0;
                if failed {
                    return Some("connected, but bytes do not come through");
                }
            }
            round += 1;
            let after = self.consumed(a, b)?;
            by_ring = std::array::from_fn(|i| by_ring[i] || before[i] == after[i]);
            let ring = by_ring == [true; 2];
            if round >= ROUNDS && (ring || !must || started.elapsed().as_millis() > WARM_MS) {
                if must {
                    print(&Printed::Warm { ring });
                }
                return Some("connected");
            }
            if must {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    fn consumed(&mut self, a: (ActorId, Slot), b: (ActorId, Slot)) -> Option<[i64; 2]> {
        Some([self.value(a.0, Ask::Consumed { slot: a.1 })?, self.value(b.0, Ask::Consumed { slot: b.1 })?])
    }

    fn fork(&mut self, parent: ActorId, child: ActorId) -> Result<String, String> {
        if self.seats.contains_key(&child) || child < 2 {
            return Ok("left out: the child exists".into());
        }
        let meet = self.layout.scratch.join("meet").display().to_string();
        let Some(pid) = self.value(parent, Ask::Fork { child, meet }) else { return Ok("the actor is gone".into()) };
        let channel = self.meet()?;
        self.seats.insert(child, Seat::There(channel));
        self.children.insert(child, (parent, pid as i32));
        Ok("forked".into())
    }

    fn exit(&mut self, at: ActorId, code: u8) -> String {
        if at < 2 {
            return "left out: not a child".into();
        }
        self.ask(at, Ask::Leave { code });
        self.reap(at)
    }

    fn reap(&mut self, child: ActorId) -> String {
        let Some((parent, pid)) = self.children.remove(&child) else { return "no child".into() };
        match self.value(parent, Ask::Reap { pid }) {
            Some(status) if libc::WIFEXITED(status as i32) => format!("exit {}", libc::WEXITSTATUS(status as i32)),
            Some(status) => format!("ended by signal {}", libc::WTERMSIG(status as i32)),
            None => "the parent is gone".into(),
        }
    }

    fn operator(&mut self, detach: bool) {
        self.detached = detach;
        print(&Printed::Operator { detach });
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    fn end(&mut self, after: usize) -> Result<(), String> {
        let seats: Vec<ActorId> = self.seats.keys().copied().collect();
        for &at in &seats {
            if let Some(answer) = self.ask(at, Ask::Finish { after }) {
                *self.pending.entry(at).or_default() -= answer.lines.len();
                answer.lines.into_iter().for_each(|line| self.tell(line));
            }
            self.settle(after);
        }
        for &at in seats.iter().rev().filter(|at| **at >= 2) {
            self.ask(at, Ask::Leave { code: 0 });
            let text = self.reap(at);
            self.tell(Line { step: after, at, text, ..Line::default() });
        }
        if let Some(mut side) = self.side.take() {
            self.ask(1, Ask::Leave { code: 0 });
            let status = side.wait().map_err(|e| e.to_string())?;
            if !status.success() {
                return Err(format!("side 1: {status}"));
            }
        }
        print(&Printed::End);
        Ok(())
    }
}
