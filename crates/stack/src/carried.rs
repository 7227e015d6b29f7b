//! A connection that the stack carries.

use crate::cause::Cause;
use crate::program::Program;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::sockopt;
use sidestep_device::Outgoing;
use sidestep_device::path::Path;
use sidestep_repair::{GiveBackError, Queues, State, Taken};
use sidestep_tcp::{Agreed, Connection, Link, Memory, Positions, Progress, Saved, Segment, Seq, Tuple, Verdict};

pub struct Carried {
    program: Program,
    connection: Connection,
    /// What the kernel was when the connection was taken.
    state: State,
    /// Bytes that the kernel had sent or queued, and that are not acknowledged. They come before those of the ring.
    queued: Vec<u8>,
    /// A segment's bytes on their way from the ring into a frame.
    scratch: Vec<u8>,
}

/// The receive ring, as the fast path fills it.
struct Inbox<'p> {
    program: &'p Program,
    rcv_nxt: Seq,
}

impl Memory for Inbox<'_> {
    fn put(&mut self, at: Seq, bytes: &[u8]) {
        self.program.put(at.since(self.rcv_nxt), bytes);
    }

    fn publish(&mut self, _progress: &Progress) {}
}

/// For segments that leave.
struct Nothing;

impl Memory for Nothing {
    fn put(&mut self, _at: Seq, _bytes: &[u8]) {}

    fn publish(&mut self, _progress: &Progress) {}
}

impl Carried {
    /// Takes the connection from the kernel. The program has entered both rings, and no packet reaches the socket. On an error
    /// the kernel carries it.
    pub fn take(program: Program, socket: BorrowedFd, path: &Path, now: u64) -> Result<Carried, Box<(Program, Cause)>> {
        let mut program = program;
        program.set_parked(true);
        match Self::taken(socket, path, program.ring_size(), now) {
            Ok((connection, taken)) => {
                let Taken { state, unacknowledged, .. } = taken;
                Ok(Carried { program, connection, state, queued: unacknowledged, scratch: Vec::new() })
            }
            Err(cause) => Err(Box::new((program, cause))),
        }
    }

    fn taken(socket: BorrowedFd, path: &Path, ring: usize, now: u64) -> Result<(Connection, Taken), Cause> {
        let taken = sidestep_repair::take(socket).map_err(Cause::Take)?;
        let carried = Self::resumed(socket, &taken, path, ring, now);
        let Ok(connection) = carried else {
            // Nothing has moved since, so the kernel goes on as it was.
            let _ = sidestep_repair::undo(socket, &taken.state.saved);
            return carried.map(|connection| (connection, taken));
        };
        if !taken.unacknowledged.is_empty()
            && let Err(error) = sidestep_repair::empty(socket, &taken.state)
        {
            let queues = Queues::new(&[], &taken.unacknowledged);
            let _ = sidestep_repair::give_back(socket, &taken.state, &queues);
            return Err(Cause::Empty(error));
        }
        Ok((connection, taken))
    }

    fn resumed(socket: BorrowedFd, taken: &Taken, path: &Path, ring: usize, now: u64) -> Result<Connection, Cause> {
        let window = taken.state.window.rcv_wnd;
        if window as usize > ring || !taken.unread.is_empty() {
            return Err(Cause::Window { window, ring });
        }
        let (local, remote) = (taken.state.local, taken.state.remote);
        let link = Link {
            local_mac: path.source,
            remote_mac: path.destination,
            traffic_class: taken.profile.traffic_class,
            hops: taken.profile.hop_limit,
            flow_label: 0,
        };
        let mut saved = saved(taken, ring);
        if !sockopt::tcp_nodelay(socket).unwrap_or(true) {
            saved.agreed.options |= Agreed::NAGLE;
        }
        Connection::resume(saved, Tuple::new(local, remote), &link, now).map_err(Cause::Resume)
    }

    /// A segment has arrived.
    pub fn receive(&mut self, segment: &Segment, now: u64) -> Result<(), Cause> {
        self.program.unread()?;
        let rcv_nxt = self.connection.saved().progress.rcv_nxt;
        let arrived = match self.connection.receive(segment, now) {
            Verdict::Accepted(arrival) => arrival.commit(&mut Inbox { program: &self.program, rcv_nxt }),
            Verdict::Discarded(_) => return Ok(()),
            Verdict::Returned(why) => return Err(Cause::Segment(why)),
        };
        if arrived.acknowledged > 0 {
            self.acknowledged(arrived.acknowledged as usize)?;
        }
        if arrived.received > 0 {
            self.program.publish(arrived.received as usize)?;
        }
        Ok(())
    }

    fn acknowledged(&mut self, n: usize) -> Result<(), Cause> {
        let of_kernel = n.min(self.queued.len());
        self.queued.drain(..of_kernel);
        if n > of_kernel { self.program.release(n - of_kernel) } else { Ok(()) }
    }

    /// Writes the segments that are due into frames. False: there was no frame for some.
    pub fn send(&mut self, frames: &mut Outgoing, now: u64) -> Result<bool, Cause> {
        if self.program.wants_kernel() {
            return Err(Cause::Wanted);
        }
        loop {
            let positions = self.positions()?;
            if frames.space() == 0 {
                return Ok(false);
            }
            let Self { program, connection, queued, scratch, .. } = self;
            let una = connection.saved().progress.snd_una;
            let Some(departure) = connection.next(positions, now).map_err(Cause::Segment)? else { return Ok(true) };
            let outgoing = departure.commit(&mut Nothing);
            let payload = outgoing.payload();
            fill(scratch, program, queued, payload.at.since(una) as usize, payload.len as usize);
            let Some(frame) = frames.buffer() else { return Ok(false) };
            if let Ok(length) = outgoing.write(frame, [scratch, &[]]) {
                frames.commit(length);
            }
        }
    }

    fn positions(&mut self) -> Result<Positions, Cause> {
        let waiting = self.program.waiting()?;
        let unread = self.program.unread()?;
        let progress = self.connection.saved().progress;
        Ok(Positions {
            written: progress.snd_una.plus((self.queued.len() + waiting) as u32),
            read: progress.rcv_nxt.minus(unread as u32),
        })
    }

    /// When [`Carried::send`] is due at the latest.
    pub fn deadline(&self) -> Option<u64> {
        self.connection.deadline()
    }

    /// Gives the connection back to the kernel, with everything that is unacknowledged or unread.
    pub fn give_back(mut self, socket: BorrowedFd) -> Result<(), GiveBackError> {
        let progress = self.connection.saved().progress;
        // A program that violates the protocol gets what is consistent.
        let _ = self.program.take_all(&mut self.queued);
        let unread = self.program.left_unread().unwrap_or_default();
        let state = self.state_now(&progress);
        let given = sidestep_repair::give_back(socket.as_fd(), &state, &Queues::new(&unread, &self.queued));
        let given = match given {
            Err(GiveBackError::Live { unqueued, source }) => {
                self.send_rest(socket, unqueued).map_err(|unqueued| GiveBackError::Live { unqueued, source })
            }
            other => other,
        };
        let _ = self.program.hand_over(unread.len());
        given
    }

    /// Sends the last `left` bytes that did not fit into the send queue. The program's own bytes follow them.
    fn send_rest(&self, socket: BorrowedFd, mut left: usize) -> Result<(), usize> {
        while left > 0 {
            match rustix::io::write(socket, &self.queued[self.queued.len() - left..]) {
                Ok(n) => left -= n,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(left),
            }
        }
        Ok(())
    }

    fn state_now(&self, progress: &Progress) -> State {
        let mut state = self.state;
        state.snd_una = progress.snd_una.0;
        state.snd_nxt = progress.snd_nxt.0;
        state.rcv_nxt = progress.rcv_nxt.0;
        state.window.snd_wl1 = progress.snd_wl1.0;
        state.window.snd_wnd = progress.snd_edge.since_or_zero(progress.snd_una);
        state.window.max_window = progress.max_window.max(state.window.snd_wnd);
        state.window.rcv_wup = progress.rcv_acked.0;
        state.window.rcv_wnd = progress.rcv_edge.since_or_zero(progress.rcv_acked);
        state
    }
}

/// The bytes `skip..skip + len` that are not acknowledged: first those of the kernel's queue, then those of the ring.
fn fill(scratch: &mut Vec<u8>, program: &Program, queued: &[u8], skip: usize, len: usize) {
    scratch.clear();
    let of_kernel = &queued[skip.min(queued.len())..(skip + len).min(queued.len())];
    scratch.extend_from_slice(of_kernel);
    if scratch.len() < len {
        program.copy((skip + of_kernel.len()) - queued.len(), len - of_kernel.len(), scratch);
    }
}

fn saved(taken: &Taken, ring: usize) -> Saved {
    let (state, path) = (&taken.state, &taken.path);
    let scales = state.scales.unwrap_or(sidestep_repair::Scales { send: 0, receive: 0 });
    let option = |is_on: bool, bit: u16| if is_on { bit } else { 0 };
    let agreed = Agreed {
        // The kernel's queue comes before the ring.
        send_ring: (taken.unacknowledged.len() + ring) as u32,
        receive_ring: ring as u32,
        mss: path.mss,
        timestamp_offset: state.timestamps.map_or(0, |clock| clock.offset),
        send_scale: scales.send,
        receive_scale: scales.receive,
        options: option(state.timestamps.is_some(), Agreed::TIMESTAMPS) | option(state.sack, Agreed::SACK),
    };
    let (snd_una, window) = (Seq(state.snd_una), &state.window);
    let progress = Progress {
        snd_una,
        snd_nxt: Seq(state.snd_nxt),
        snd_edge: snd_una.plus(window.snd_wnd),
        snd_wl1: Seq(window.snd_wl1),
        max_window: window.max_window,
        rcv_nxt: Seq(state.rcv_nxt),
        rcv_edge: Seq(window.rcv_wup).plus(window.rcv_wnd),
        rcv_acked: Seq(window.rcv_wup),
        ts_recent: 0,
        ts_known: 0,
        cwnd: path.cwnd.max(1),
        ssthresh: path.ssthresh,
        srtt: path.srtt_us,
        rttvar: path.rttvar_us,
    };
    Saved { agreed, progress }
}
