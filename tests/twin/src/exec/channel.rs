//! Messages between the coordinator and actors in other processes: lines of JSON on a socket.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use super::worker::raise;
use crate::program::{Act, ActorId, Slot};
use crate::trace::Line;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Execute a step. `blocks`: whether the call blocked on the kernel, if known. `fills`: lengths of the fills that have not
    /// been read yet. `held`: what calls of all actors that have not returned wait for.
    Do {
        step: usize,
        act: Act,
        blocks: Option<bool>,
        fills: Vec<usize>,
        held: Vec<Hold>,
    },
    /// Wait until blocked calls return or sleep. `expected`: those that returned on the kernel.
    Settle {
        after: usize,
        expected: Vec<usize>,
    },
    /// Make a listener for one connection. The answer is its port.
    Listen {
        v6: bool,
    },
    Connect {
        slot: Slot,
        v6: bool,
        port: u16,
    },
    Accept {
        slot: Slot,
    },
    /// Ask for the port of a slot's socket.
    Port {
        slot: Slot,
    },
    WarmSend {
        slot: Slot,
    },
    WarmRecv {
        slot: Slot,
    },
    /// Ask how many bytes have come by kernel.
    Consumed {
        slot: Slot,
    },
    /// Fork. The child takes its commands from this address. The answer is its pid.
    Fork {
        child: ActorId,
        meet: String,
    },
    /// Wait for a child. The answer is its wait status.
    Reap {
        pid: i32,
    },
    /// Shut all sockets down.
    Finish {
        after: usize,
    },
    /// End the process. There is no answer.
    Leave {
        code: u8,
    },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    pub lines: Vec<Line>,
    pub value: i64,
    /// What this actor's calls that have not returned wait for.
    pub held: Vec<Hold>,
}

/// The socket or file whose bytes a call moves. If two calls moved bytes of the same one, their shares would be a matter of
/// chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub inode: u64,
    pub sends: bool,
    pub step: usize,
}

pub struct Channel {
    stream: BufReader<UnixStream>,
}

impl Channel {
    pub fn new(stream: UnixStream) -> Channel {
        let high = raise(std::os::fd::IntoRawFd::into_raw_fd(stream));
        // SAFETY: a number that was just made and belongs to nobody else.
        Channel { stream: BufReader::new(unsafe { UnixStream::from_raw_fd(high) }) }
    }

    pub fn say(&mut self, what: &impl Serialize) -> Result<(), String> {
        let line = serde_json::to_string(what).expect("it is JSON") + "\n";
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|e| e.to_string())
    }

    /// None: the other end is gone.
    pub fn hear<T: for<'a> Deserialize<'a>>(&mut self) -> Option<T> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(n) if n > 0 => serde_json::from_str(&line).ok(),
            _ => None,
        }
    }
}
