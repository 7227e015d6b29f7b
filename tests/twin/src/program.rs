//! What a program is: steps that name slots, never numbers, so that they mean the same in every run.
//!
//! A file of a program has one step a line, as JSON; lines that begin with `#` are comments.

use serde::{Deserialize, Serialize};

/// An actor's place for a descriptor.
pub type Slot = u8;
/// Who executes a step: 0 and 1 are the two sides, 2 and more are forked children.
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
    /// A TCP socket that listens; its address is known to all as number `name`.
    Listen {
        slot: Slot,
        name: u8,
        v6: bool,
        nonblock: bool,
    },
    /// Another kind of descriptor. Those that come in twos take the next slot as well.
    Make {
        slot: Slot,
        kind: Kind,
    },
    /// Closes by close(2). The slot keeps the number, which is somebody else's or nobody's from here on.
    Close {
        slot: Slot,
    },
    /// A signal for the thread that has waited longest in a call of this actor.
    Signal {
        signal: i32,
    },
    /// What the actor's process does with a signal.
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
    /// The operator takes all connections back to the kernel, or lets them be upgraded again. Nothing without Sidestep.
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
    /// By libc's syscall() instead of the function of that name.
    #[serde(default, skip_serializing_if = "is_false")]
    pub raw: bool,
    /// Where a descriptor that it returns goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<Slot>,
    /// It comes back by itself after so many milliseconds.
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

/// An argument of a call, and with it what of the call's outcome is looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arg {
    /// The number in a slot.
    Fd(Slot),
    Num(i64),
    Null,
    /// A page that nobody may touch, and one that nobody may write.
    Nowhere,
    ReadOnly,
    /// Bytes to be sent; memory ends after `good` of them.
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
    /// Room for an address, or for an option's value; the length that goes with it is the next argument.
    Value {
        len: u32,
    },
    /// A pointer to a length, which is told afterwards.
    Len(i32),
    /// A pointer to an int, which is told afterwards.
    Int(i32),
    /// A pointer to a file offset, which is told afterwards.
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

/// One piece of an iovec. `claim`: the length that is said, where it is not the true one.
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
