//! One end of a connection: a program, two rings, a record, and a worker that may be killed at any store. Every byte of a stream
//! is a function of its number, so that each end knows what it must find.
#![allow(dead_code)] // each body uses its part

use crate::tcp_store::Store;
use sidestep_tcp::{
    Agreed, Back, Checksums, Connection, Discarded, Link, Positions, Progress, Saved, Segment, Seq, Tuple, Verdict,
};
use std::collections::VecDeque;

/// Frames on their way to one end.
pub type Wire = VecDeque<Vec<u8>>;

/// What the worker of an end did with what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It goes on.
    Well,
    /// It was killed.
    Died,
    /// It gives the connection back.
    Returned(Back),
}

pub struct End {
    pub connection: Connection,
    pub store: Store,
    agreed: Agreed,
    link: Link,
    /// Names the stream that this end writes.
    stream: u8,
    send_ring: Vec<u8>,
    /// Where the program writes and reads.
    pub positions: Positions,
    /// What the worker has told the program: the bytes before the first may be read, those before the second are acknowledged.
    told: (Seq, Seq),
    /// The furthest of what has left: data, acknowledgement, window.
    pub sent: Seq,
    pub acked: Seq,
    pub promised: Seq,
    /// The ends of the segments that have left and are not acknowledged.
    flight: Vec<Seq>,
    /// Segments that it discarded.
    pub discarded: Vec<Discarded>,
}

/// The byte of a stream with this number.
pub fn byte(stream: u8, at: Seq) -> u8 {
    (at.0.wrapping_mul(0x9E37_79B1) >> 21) as u8 ^ stream.wrapping_mul(0x55)
}

pub fn link(stream: u8) -> Link {
    let mac = |of: u8| [2, 0, 0, 0, 0, of];
    Link { local_mac: mac(stream), remote_mac: mac(1 - stream), traffic_class: 0, hops: 64, flow_label: 0x12345 }
}

impl End {
    pub fn new(stream: u8, saved: Saved, tuple: Tuple, now: u64) -> End {
        let Saved { agreed, progress } = saved;
        let link = link(stream);
        End {
            connection: Connection::resume(saved, tuple, &link, now).expect("a state that a connection can have"),
            store: Store::new(progress, agreed.receive_ring),
            agreed,
            link,
            stream,
            send_ring: vec![0; agreed.send_ring as usize],
            positions: Positions { written: progress.snd_nxt, read: progress.rcv_nxt },
            told: (progress.rcv_nxt, progress.snd_una),
            sent: progress.snd_nxt,
            acked: progress.rcv_nxt,
            promised: progress.rcv_edge,
            flight: Vec::new(),
            discarded: Vec::new(),
        }
    }

    /// The program writes up to `n` bytes.
    pub fn write(&mut self, n: u32) {
        let room = self.agreed.send_ring - self.positions.written.since(self.told.1);
        for _ in 0..n.min(room) {
            let at = self.positions.written;
            let place = self.place(at);
            self.send_ring[place] = byte(self.stream, at);
            self.positions.written = at.plus(1);
        }
    }

    /// The program reads up to `n` bytes, each of which is the right one.
    pub fn read(&mut self, n: u32) {
        let there = self.told.0.since(self.positions.read);
        let end = self.positions.read.plus(n.min(there));
        self.check_received(end);
        self.positions.read = end;
    }

    /// The program reads if three quarters of its ring are full.
    pub fn read_if_full(&mut self) {
        if self.told.0.since(self.positions.read) > self.agreed.receive_ring / 4 * 3 {
            self.read(u32::MAX);
        }
    }

    fn check_received(&self, end: Seq) {
        for n in 0..end.since(self.positions.read) {
            let at = self.positions.read.plus(n);
            assert_eq!(self.store.byte(at), byte(1 - self.stream, at), "byte {n} of what the program reads");
        }
    }

    fn place(&self, at: Seq) -> usize {
        at.0 as usize & (self.send_ring.len() - 1)
    }

    /// A frame arrives.
    pub fn receive(&mut self, frame: &[u8], now: u64) -> Did {
        let Ok(segment) = Segment::parse(frame, Checksums::Complete) else { return Did::Well };
        if segment.tuple != self.connection.tuple() {
            return Did::Well;
        }
        let before = self.connection.saved();
        match self.connection.receive(&segment, now) {
            Verdict::Accepted(arrival) => {
                let arrived = arrival.commit(&mut self.store);
                if !self.store.lives() {
                    return Did::Died;
                }
                self.told = (self.told.0.plus(arrived.received), self.told.1.plus(arrived.acknowledged));
                assert_eq!(self.connection.saved().progress, self.store.progress(), "the record tells everything");
                return Did::Well;
            }
            Verdict::Discarded(why) => self.discarded.push(why),
            Verdict::Returned(why) => {
                assert_eq!(self.connection.saved(), before, "{why}: nothing has changed");
                return Did::Returned(why);
            }
        }
        assert_eq!(self.connection.saved(), before, "a discarded segment changes nothing");
        Did::Well
    }

    /// Everything that is due leaves.
    pub fn send(&mut self, now: u64, wire: &mut Wire) -> Did {
        loop {
            let departure = match self.connection.next(self.positions, now) {
                Ok(Some(departure)) => departure,
                Ok(None) => return Did::Well,
                Err(back) => return Did::Returned(back),
            };
            let outgoing = departure.commit(&mut self.store);
            if !self.store.lives() {
                return Did::Died;
            }
            let (payload, fields) = (outgoing.payload(), outgoing.fields());
            let from = payload.at.0 as usize & (self.send_ring.len() - 1);
            let first = (payload.len as usize).min(self.send_ring.len() - from);
            let parts = [&self.send_ring[from..from + first], &self.send_ring[..payload.len as usize - first]];
            let mut frame = vec![0; 2048];
            let len = outgoing.write(&mut frame, parts).expect("room for a frame");
            frame.truncate(len);
            let end = payload.at.plus(payload.len);
            if payload.len > 0 {
                self.flight.push(end);
            }
            self.sent = self.sent.max(end);
            self.acked = self.acked.max(fields.ack);
            self.promised = self.promised.max(fields.ack.plus(u32::from(fields.window) << self.agreed.receive_scale));
            self.check_sent();
            wire.push_back(frame);
        }
    }

    /// What the record must tell of what has left.
    fn check_sent(&mut self) {
        let progress = self.store.progress();
        self.flight.retain(|end| end.is_after(progress.snd_una));
        assert!(self.flight.len() <= progress.cwnd as usize, "no more in flight than the congestion window permits");
        assert!(!self.sent.is_after(progress.snd_nxt), "the record tells of each segment before it leaves");
        assert!(!self.acked.is_after(progress.rcv_nxt), "nothing is acknowledged before it is recorded");
        assert!(!self.promised.is_after(progress.rcv_edge), "no window is promised before it is recorded");
        let room_end = self.positions.read.plus(self.agreed.receive_ring);
        assert!(!progress.rcv_edge.is_after(room_end), "the ring holds what is promised");
    }

    /// The worker is gone. Record and rings hold the whole connection, and another worker goes on.
    pub fn restore(&mut self, now: u64) {
        self.check_whole();
        let Progress { rcv_nxt, snd_una, .. } = self.store.progress();
        self.told = (rcv_nxt, snd_una);
        self.store.revive();
        let saved = Saved { agreed: self.agreed, progress: self.store.progress() };
        let tuple = self.connection.tuple();
        self.connection = Connection::resume(saved, tuple, &self.link, now).expect("a record of any moment");
    }

    /// Record and rings are enough to give the connection back.
    pub fn check_whole(&mut self) {
        self.check_sent();
        let progress = self.store.progress();
        self.check_received(progress.rcv_nxt);
        for n in 0..self.positions.written.since(progress.snd_una) {
            let at = progress.snd_una.plus(n);
            assert_eq!(self.send_ring[self.place(at)], byte(self.stream, at), "unacknowledged byte {n}");
        }
    }
}
