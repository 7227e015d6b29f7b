//! A connection that the stack carries.

use crate::cause::Cause;
use crate::handover::{Handover, Unread};
use crate::layout::QUEUE_ROOM;
use crate::pace::{Pace, Way};
use crate::program::Program;
use crate::record::{Kept, Origin, Record};
use crate::subject::{Declined, Subject};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::sockopt;
use sidestep_device::{CHUNK, Outgoing};
use sidestep_repair::{GiveBackError, Taken};
use sidestep_tcp::{
    Agreed, Connection, Headers, Link, Memory, Positions, Progress, Saved, Segment, Seq, Tuple, Verdict,
};

pub struct Carried {
    program: Program,
    connection: Connection,
    record: Record,
    kept: Kept,
    /// Bytes that the kernel had sent or queued, and that are not acknowledged. They come before those of the ring.
    queued: Vec<u8>,
    pace: Pace,
    /// Bytes have arrived of which the program has not been told. It is told after all frames of a turn, and so wakes up once.
    has_arrived: bool,
    /// Microseconds without news after which the kernel is to watch over the connection.
    patience: u64,
    /// When something was last sent or received.
    active_at: u64,
    /// A segment has come that fits. Until then the frames of these addresses may be another connection's.
    is_proved: bool,
    /// A segment's bytes on their way from the ring into a frame.
    scratch: Vec<u8>,
}

/// A connection that was not taken.
pub enum NotCarried {
    /// The kernel carries it.
    Kernel(Box<Program>, Record, Cause),
    /// It has left the kernel, and must be given back.
    Emptied(Box<Carried>, Cause),
}

/// The memory of a connection, as the fast path writes it.
struct Store<'p> {
    program: &'p Program,
    record: &'p Record,
    rcv_nxt: Seq,
}

impl Memory for Store<'_> {
    fn put(&mut self, at: Seq, bytes: &[u8]) {
        self.program.put(at.since(self.rcv_nxt), bytes);
    }

    fn publish(&mut self, progress: &Progress) {
        self.record.publish(progress);
    }
}

impl Carried {
    /// Takes the connection from the kernel. The program has entered both rings, and no packet reaches the socket.
    pub fn take(
        mut program: Program,
        record: Record,
        subject: &Subject,
        pace: Pace,
        now: u64,
    ) -> Result<Carried, Box<NotCarried>> {
        let (connection, taken) = match Self::taken(&mut program, &record, subject, now) {
            Ok(both) => both,
            Err(cause) => {
                program.spare(subject.socket.as_fd());
                return Err(Box::new(NotCarried::Kernel(Box::new(program), record, cause)));
            }
        };
        let (state, queued) = (taken.state, taken.unacknowledged);
        let (from_program, to_program) = program.positions();
        let kept = Kept {
            state,
            from_program: Origin { position: from_program, seq: state.snd_una.wrapping_add(queued.len() as u32) },
            to_program: Origin { position: to_program, seq: state.rcv_nxt },
            queued: queued.len() as u32,
        };
        record.carry(&kept, &connection.saved().progress, &queued);
        let carried = Carried {
            program,
            connection,
            record,
            kept,
            queued,
            pace,
            has_arrived: false,
            patience: patience(&kept),
            active_at: now,
            is_proved: false,
            scratch: Vec::new(),
        };
        if carried.queued.is_empty() {
            return Ok(carried);
        }
        match sidestep_repair::empty(&subject.socket, &state) {
            Ok(()) => Ok(carried),
            Err(error) => Err(Box::new(NotCarried::Emptied(Box::new(carried), Cause::Empty(error)))),
        }
    }

    fn taken(
        program: &mut Program,
        record: &Record,
        subject: &Subject,
        now: u64,
    ) -> Result<(Connection, Taken), Cause> {
        let saved = sidestep_repair::prepare(&subject.socket).map_err(Cause::Take)?;
        record.begin_taking(&saved);
        program.set_parked(true);
        program.check_rings()?;
        let mut taken = sidestep_repair::take_prepared(&subject.socket, saved).map_err(Cause::Take)?;
        taken.state.remote = subject.remote;
        let carried = Self::resumed(&taken, subject, program.ring_size(), now);
        if carried.is_err() {
            // Nothing has moved since, so the kernel goes on as it was.
            let _ = sidestep_repair::undo(&subject.socket, &taken.state.saved);
        }
        carried.map(|connection| (connection, taken))
    }

    fn resumed(taken: &Taken, subject: &Subject, ring: usize, now: u64) -> Result<Connection, Cause> {
        if !subject.is_still_connected() {
            return Err(Declined::NotConnected.into());
        }
        let window = taken.state.window.rcv_wnd;
        if window as usize > ring || !taken.unread.is_empty() {
            return Err(Cause::Window { window, ring });
        }
        let queued = taken.unacknowledged.len();
        if queued > QUEUE_ROOM {
            return Err(Cause::Queue { queued });
        }
        let (local, remote) = (taken.state.local, taken.state.remote);
        let link = Link {
            local_mac: subject.path.source,
            remote_mac: subject.path.destination,
            traffic_class: taken.profile.traffic_class,
            hops: taken.profile.hop_limit.saturating_sub(subject.routers),
            flow_label: 0,
        };
        let mut saved = saved(taken, ring);
        if !sockopt::tcp_nodelay(&subject.socket).unwrap_or(true) {
            saved.agreed.options |= Agreed::NAGLE;
        }
        Connection::resume(saved, Tuple::new(local, remote), &link, now).map_err(Cause::Resume)
    }

    /// A segment has arrived.
    pub fn receive(&mut self, segment: &Segment, now: u64) -> Result<(), Cause> {
        self.program.unread()?;
        let rcv_nxt = self.connection.saved().progress.rcv_nxt;
        let arrived = match self.connection.receive(segment, now) {
            Verdict::Accepted(arrival) => {
                arrival.commit(&mut Store { program: &self.program, record: &self.record, rcv_nxt })
            }
            Verdict::Discarded(_) if self.is_proved => return Ok(()),
            Verdict::Discarded(_) => return Err(Cause::Stranger),
            Verdict::Returned(why) => return Err(Cause::Segment(why)),
        };
        (self.is_proved, self.active_at) = (true, now);
        if arrived.acknowledged > 0 {
            self.acknowledged(arrived.acknowledged as usize)?;
        }
        if arrived.received > 0 {
            self.pace.note(Way::In, arrived.received);
            self.has_arrived = true;
            let published = self.program.publish(arrived.received as usize)?;
            self.record.set_published(published);
        }
        Ok(())
    }

    /// Tells the program of what has arrived.
    fn tell(&mut self) {
        if std::mem::take(&mut self.has_arrived) {
            self.program.notify();
        }
    }

    fn acknowledged(&mut self, n: usize) -> Result<(), Cause> {
        let of_kernel = n.min(self.queued.len());
        self.queued.drain(..of_kernel);
        if n > of_kernel {
            let released = self.program.release(n - of_kernel)?;
            self.record.set_released(released);
        }
        Ok(())
    }

    /// Writes the segments that are due into frames. False: there was no frame for some.
    pub fn send(&mut self, frames: &mut Outgoing, now: u64) -> Result<bool, Cause> {
        self.tell();
        self.program.check_wish()?;
        if self.pace.is_bulk() {
            return Err(Cause::Bulk);
        }
        let mut has_wished = false;
        loop {
            let positions = self.positions()?;
            if frames.space() == 0 {
                return Ok(false);
            }
            let Self { program, connection, record, queued, pace, scratch, active_at, .. } = self;
            let Progress { snd_una: una, rcv_nxt, .. } = connection.saved().progress;
            let Some(departure) = connection.next(positions, now).map_err(Cause::Segment)? else {
                if !has_wished && connection.is_window_short() {
                    has_wished = true;
                    program.wish_space();
                    continue;
                }
                return if now < *active_at + self.patience { Ok(true) } else { Err(Cause::Idle) };
            };
            *active_at = now;
            let outgoing = departure.commit(&mut Store { program, record, rcv_nxt });
            let payload = outgoing.payload();
            pace.note(Way::Out, payload.len);
            fill(scratch, program, queued, payload.at.since(una) as usize, payload.len as usize);
            write(&outgoing, frames, scratch);
        }
    }

    /// Writes what the peer misses into a frame, if there is one.
    pub fn send_missing(&mut self, frames: &mut Outgoing, now: u64) {
        let Self { program, connection, queued, scratch, .. } = self;
        let Some(again) = connection.missing(now) else { return };
        let (payload, una) = (again.payload(), connection.saved().progress.snd_una);
        fill(scratch, program, queued, payload.at.since(una) as usize, payload.len as usize);
        write(&again, frames, scratch);
    }

    /// Writes the acknowledgement that is owed into a frame, if there is one: the kernel would not know of it, and the peer would wait
    /// for its retransmission timer.
    pub fn acknowledge(&self, frames: &mut Outgoing, now: u64) {
        if let Some(owed) = self.connection.owed(now) {
            write(&owed, frames, &[]);
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
    pub fn deadline(&self) -> u64 {
        let idle = self.active_at + self.patience;
        self.connection.deadline().map_or(idle, |deadline| deadline.min(idle))
    }

    /// Gives the connection back to the kernel, with everything that is unacknowledged or unread. After an error of
    /// [`is_stranded`](crate::handover::is_stranded) the connection is as it was.
    pub fn give_back(&mut self, socket: BorrowedFd, unread: Unread) -> Result<(), GiveBackError> {
        self.tell();
        let Carried { program, connection, record, kept, queued, .. } = self;
        let (progress, queued) = (connection.saved().progress, queued.clone());
        Handover { program, record, kept: *kept, progress, queued, unread, found: None }.run(socket)
    }

    /// The program and the record, once the connection is given back.
    pub fn into_parts(self) -> (Program, Record) {
        (self.program, self.record)
    }
}

/// Longest time without news. The kernel sends keepalive probes, and notices if the peer is gone.
const IDLE: u64 = 60_000_000;

/// A program that has asked for keepalive probes after a shorter time hears of a peer that is gone half of that time late at most.
fn patience(kept: &Kept) -> u64 {
    let probed = kept.state.saved.keepalive.map(|keepalive| u64::from(keepalive.idle) * 1_000_000 / 2);
    probed.map_or(IDLE, |probed| probed.min(IDLE))
}

/// Writes the segment into a frame, which is there.
fn write(outgoing: &sidestep_tcp::Outgoing, frames: &mut Outgoing, payload: &[u8]) {
    let Some(frame) = frames.buffer() else { return };
    if let Ok(length) = outgoing.write(frame, [payload, &[]]) {
        frames.commit(length);
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

/// A frame with its headers is in one chunk, however long the device's frames may be.
const LONGEST_SEGMENT: u32 = (CHUNK - Headers::MOST) as u32;

fn saved(taken: &Taken, ring: usize) -> Saved {
    let (state, path) = (&taken.state, &taken.path);
    let scales = state.scales.unwrap_or(sidestep_repair::Scales { send: 0, receive: 0 });
    let option = |is_on: bool, bit: u16| if is_on { bit } else { 0 };
    let agreed = Agreed {
        // The kernel's queue comes before the ring.
        send_ring: (taken.unacknowledged.len() + ring) as u32,
        receive_ring: ring as u32,
        mss: path.mss.min(LONGEST_SEGMENT),
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

#[cfg(test)]
mod tests;
