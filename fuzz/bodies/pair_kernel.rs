//! A plain model of TCP as Linux has it: the two sockets of a connection, and what is on its way between them. Nothing is late but
//! what its receiver has no room for.
#![allow(dead_code)] // each test uses its part

use std::collections::VecDeque;

/// The error of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// ECONNRESET
    Reset,
    /// EPIPE
    Pipe,
}

/// What became of bytes that were given to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Some(usize),
    Full,
    Fails(Error),
}

/// What the kernel has for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes(Vec<u8>),
    Nothing,
    End,
    Fails(Error),
}

/// Events of poll(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// POLLERR
    pub error: bool,
    /// POLLHUP
    pub hang_up: bool,
    /// POLLRDHUP
    pub end: bool,
}

impl Events {
    pub fn any(self) -> bool {
        self.error || self.hang_up || self.end
    }
}

#[derive(Default)]
struct Socket {
    /// Written here, and not read at the other end. What has arrived there comes first.
    sent: VecDeque<u8>,
    /// All that was ever written here.
    taken: u64,
    /// How many of the other end's bytes have arrived here and are unread.
    arrived: usize,
    /// Nothing more will be written here.
    has_finished: bool,
    /// The other end's FIN has arrived.
    has_end: bool,
    /// shutdown(SHUT_RD)
    is_deaf: bool,
    /// SO_LINGER with no time: close(2) resets the connection.
    lingers: bool,
    /// No process holds the socket.
    is_closed: bool,
    is_reset: bool,
    /// What the next call fails with.
    error: Option<Error>,
}

pub struct Kernel {
    sockets: [Socket; 2],
    /// Bytes of one direction that the kernel takes.
    room: usize,
    /// How many of them its receiver takes.
    window: usize,
}

impl Kernel {
    pub fn new(room: usize, window: usize) -> Kernel {
        Kernel { sockets: Default::default(), room, window }
    }

    /// Whether somebody holds the socket of `side`, and could write there.
    pub fn may_send(&self, side: usize) -> bool {
        !self.sockets[side].has_finished && !self.sockets[side].is_closed
    }

    /// Gives the kernel what it takes of `bytes`.
    pub fn send(&mut self, side: usize, bytes: &[u8]) -> Sent {
        assert!(self.may_send(side), "bytes after the end");
        let socket = &mut self.sockets[side];
        if let Some(error) = socket.error.take() {
            return Sent::Fails(error);
        }
        if socket.is_reset {
            return Sent::Fails(Error::Pipe);
        }
        let n = bytes.len().min(self.room - socket.sent.len());
        if n == 0 {
            return Sent::Full;
        }
        socket.sent.extend(&bytes[..n]);
        socket.taken += n as u64;
        self.deliver();
        Sent::Some(n)
    }

    /// Takes up to `max` bytes that have come to `side`.
    pub fn receive(&mut self, side: usize, max: usize) -> Received {
        let got = self.peek(side, max);
        if let Received::Bytes(bytes) = &got {
            self.sockets[side].arrived -= bytes.len();
            self.sockets[1 - side].sent.drain(..bytes.len());
            self.deliver();
        }
        got
    }

    /// As `receive`, and leaves the bytes there, but not an error.
    pub fn peek(&mut self, side: usize, max: usize) -> Received {
        let n = max.min(self.sockets[side].arrived);
        if n > 0 {
            return Received::Bytes(self.sockets[1 - side].sent.iter().copied().take(n).collect());
        }
        let socket = &mut self.sockets[side];
        match () {
            () if socket.has_end => Received::End,
            () if socket.error.is_some() => socket.error.take().map_or(Received::End, Received::Fails),
            () if socket.is_deaf || socket.is_reset => Received::End,
            () => Received::Nothing,
        }
    }

    /// How many bytes `side` could read.
    pub fn queued(&self, side: usize) -> usize {
        self.sockets[side].arrived
    }

    pub fn poll(&self, side: usize) -> Events {
        let socket = &self.sockets[side];
        let end = socket.has_end || socket.is_deaf || socket.is_reset;
        Events { error: socket.error.is_some(), hang_up: socket.is_reset || end && socket.has_finished, end }
    }

    pub fn is_deaf(&self, side: usize) -> bool {
        self.sockets[side].is_deaf
    }

    /// Whether the other end's FIN, or a reset, has come to `side`.
    pub fn has_end(&self, side: usize) -> bool {
        self.sockets[side].has_end || self.sockets[side].is_reset
    }

    /// Whether the other end's FIN has come to `side`.
    pub fn has_fin(&self, side: usize) -> bool {
        self.sockets[side].has_end
    }

    pub fn is_reset(&self, side: usize) -> bool {
        self.sockets[side].is_reset
    }

    /// Number of bytes that the kernel has had from `side`. None: the connection is not open in both directions.
    pub fn written(&self, side: usize) -> Option<u64> {
        let socket = &self.sockets[side];
        (!socket.has_finished && !socket.has_end && !socket.is_reset).then_some(socket.taken)
    }

    /// shutdown(SHUT_WR), or SHUT_RDWR.
    pub fn shut(&mut self, side: usize, read: bool) {
        self.sockets[side].is_deaf |= read;
        self.sockets[side].has_finished = true;
        self.deliver();
    }

    /// shutdown(SHUT_RD): what comes can be read still, but nobody waits for it.
    pub fn shut_read(&mut self, side: usize) {
        self.sockets[side].is_deaf = true;
    }

    /// SO_LINGER
    pub fn set_lingers(&mut self, side: usize) {
        self.sockets[side].lingers = true;
    }

    pub fn lingers(&self, side: usize) -> bool {
        self.sockets[side].lingers
    }

    /// The last process that held the socket closes it, or dies.
    pub fn close(&mut self, side: usize) {
        let unsent = self.sockets[side].sent.len() > self.sockets[1 - side].arrived;
        let socket = &mut self.sockets[side];
        socket.is_closed = true;
        let is_half_over = socket.has_finished && socket.has_end;
        let has_unread = core::mem::take(&mut socket.arrived) > 0;
        let lingers = socket.lingers;
        self.sockets[1 - side].sent.clear();
        if !self.is_over(side) && (has_unread || lingers && (unsent || !is_half_over)) {
            return self.abort(side);
        }
        self.shut(side, false);
    }

    /// `side` resets the connection.
    pub fn abort(&mut self, side: usize) {
        self.reset(side);
        self.reset(1 - side);
    }

    /// Somebody between the two resets the connection at both ends.
    pub fn cut(&mut self) {
        self.abort(0);
    }

    /// The connection is over for `side`: it has sent and received both ends, or a reset.
    fn is_over(&self, side: usize) -> bool {
        self.sockets[side].is_reset || self.sockets[side].has_end && self.sockets[1 - side].has_end
    }

    /// A reset comes to `side`, or goes from there. What has not arrived at the other end is lost.
    fn reset(&mut self, side: usize) {
        if self.is_over(side) {
            return;
        }
        let arrived = self.sockets[1 - side].arrived;
        let socket = &mut self.sockets[side];
        socket.sent.truncate(arrived);
        socket.is_reset = true;
        socket.error = Some(if socket.has_end && !socket.has_finished { Error::Pipe } else { Error::Reset });
    }

    /// What has been sent arrives, as far as there is room.
    fn deliver(&mut self) {
        for side in 0..2 {
            let (there, has_finished) = (self.sockets[1 - side].sent.len(), self.sockets[1 - side].has_finished);
            let socket = &mut self.sockets[side];
            let n = there.min(self.window);
            if socket.is_reset {
                continue;
            }
            if n > socket.arrived && (socket.is_closed || socket.is_deaf && socket.has_finished) {
                return self.abort(side); // nobody reads that
            }
            socket.arrived = n;
            socket.has_end |= has_finished && n == there;
        }
    }
}
