//! Programs: steps that name slots and never descriptor numbers, so that they mean the same in every run.
//!
//! A program file has one step in each line, as JSON. Lines that begin with `#` are comments.

use serde::{Deserialize, Serialize};

/// A place for a descriptor of an actor.
pub type Slot = u8;
/// The actor that executes a step: 0 and 1 are the two sides, 2 and more are forked children.
pub type ActorId = u8;

pub const SLOTS: usize = 16;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub at: ActorId,
    #[serde(flatten)]
    pub act: Act,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Any function of libc.
    Call(Call),
    /// A connection: `a` of side 0 connects, `b` of side 1 accepts, or the other way round if the step is `at` side 1.
    Pair {
        a: Slot,
        b: Slot,
        v6: bool,
        warm: bool,
    },
    /// Makes a TCP socket that listens; all actors know its address as number `name`.
    Listen {
        slot: Slot,
        name: u8,
        v6: bool,
        nonblock: bool,
    },
    /// Makes another kind of descriptor. Kinds that come in pairs take the next slot as well.
    Make {
        slot: Slot,
        kind: Kind,
    },
    /// Closes by close(2). The slot keeps the number, which stands for another file or for nothing from then on.
    Close {
        slot: Slot,
    },
    /// Sends a signal to the thread that has waited longest in a call of this actor.
    Signal {
        signal: i32,
    },
    /// Sets the action of the actor's process for a signal.
    Handler {
        signal: i32,
        how: Handling,
    },
    /// The actor's process forks; the child is a new actor with the same slots.
    Fork {
        child: ActorId,
    },
    /// A forked child ends.
    Exit {
        code: u8,
    },
    /// Writes without blocking until nothing more fits for a while.
    Fill {
        slot: Slot,
    },
    /// Reads without blocking until nothing more comes for a while.
    Drain {
        slot: Slot,
    },
    /// The operator takes all connections back to the kernel, or permits upgrades again. No effect without Sidestep.
    Operator {
        detach: bool,
    },
    Nap {
        ms: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub name: String,
    pub args: Vec<Arg>,
    /// Made by libc's syscall() instead of the function with that name.
    #[serde(default, skip_serializing_if = "is_false")]
    pub raw: bool,
    /// The slot for a descriptor that the call returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<Slot>,
    /// The call returns by itself after this many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Pipe,
    UnixPair,
    Udp,
    Tcp,
    Tcp6,
    File,
    EventFd,
    Epoll,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handling {
    Restart,
    Interrupt,
    Ignore,
}

/// An argument of a call. It also determines which part of the outcome is compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arg {
    /// The descriptor in a slot.
    Fd(Slot),
    Num(i64),
    Null,
    /// A page that must not be accessed, and one that must not be written.
    Nowhere,
    ReadOnly,
    /// Bytes to be sent; the memory ends after `good` of them.
    Data {
        len: u32,
        good: u32,
    },
    /// Room for bytes that arrive.
    Room {
        len: u32,
        good: u32,
    },
    Vec {
        parts: Vec<Part>,
    },
    /// A msghdr.
    Msg(Msg),
    /// An array of mmsghdr.
    Msgs(Vec<Msg>),
    /// The address of a listener.
    Address {
        name: u8,
        #[serde(default)]
        port: u16,
        v6: bool,
    },
    /// Given bytes: an option's value, an address.
    Bytes(Vec<u8>),
    /// Room for an address or an option's value; its length is the next argument.
    Value {
        len: u32,
    },
    /// A pointer to a length, whose value is compared afterwards.
    Len(i32),
    /// A pointer to an int, whose value is compared afterwards.
    Int(i32),
    /// A pointer to a file offset, whose value is compared afterwards.
    Offset(i64),
    Polls(Vec<(Watched, i16)>),
    Set(Vec<Slot>),
    Timeval {
        sec: i64,
        part: i64,
    },
    Timespec {
        sec: i64,
        part: i64,
    },
    Event {
        events: u32,
        data: u64,
    },
    Events {
        room: u32,
    },
    Signals(Vec<i32>),
}

/// A descriptor in a list for poll.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watched {
    Slot(Slot),
    Number(i32),
}

/// One piece of an iovec. `claim`: the length that is passed, if it is not the true one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub len: u32,
    #[serde(default, skip_serializing_if = "is_false")]
    pub bad: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Msg {
    pub parts: Vec<Part>,
    /// Room for an address, in bytes.
    #[serde(default)]
    pub name: u32,
    /// Room for control data, in bytes.
    #[serde(default)]
    pub control: u32,
}

pub fn parse(text: &str) -> Result<Vec<Step>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|(i, line)| serde_json::from_str(line).map_err(|e| format!("line {}: {e}", i + 1))).collect()
}

pub fn format(steps: &[Step]) -> String {
    let line = |step| serde_json::to_string(step).expect("a step is JSON") + "\n";
    steps.iter().map(line).collect()
}
