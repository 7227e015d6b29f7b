//! One connection whose numbers are easy to read: it has sent nothing from 1000 on, and received everything before 5000.
#![allow(dead_code)] // each test uses its part

use sidestep_tcp::{
    Agreed, Back, Connection, Discarded, Fields, Flags, Link, Memory, Options, Positions, Progress, Saved, Segment,
    Seq, Timestamps, Tuple, Verdict,
};

pub const UNA: u32 = 1000;
pub const NXT: u32 = 5000;
pub const MSS: u32 = 100;
/// Of either ring, and of either window.
pub const RING: u32 = 8000;
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Counts what is stored, and keeps nothing else.
#[derive(Default)]
pub struct Log(pub Vec<Stored>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    Put(Seq, Vec<u8>),
    Published(Box<Progress>),
}

impl Memory for Log {
    fn put(&mut self, at: Seq, bytes: &[u8]) {
        self.0.push(Stored::Put(at, bytes.to_vec()));
    }

    fn publish(&mut self, progress: &Progress) {
        self.0.push(Stored::Published(Box::new(*progress)));
    }
}

pub fn tuple() -> Tuple {
    Tuple::new("192.0.2.1:1".parse().expect("an address"), "192.0.2.2:2".parse().expect("an address"))
}

pub fn saved() -> Saved {
    let agreed = Agreed { send_ring: RING, receive_ring: RING, mss: MSS, ..Agreed::default() };
    let progress = Progress {
        snd_una: Seq(UNA),
        snd_nxt: Seq(UNA),
        snd_edge: Seq(UNA + RING),
        snd_wl1: Seq(NXT),
        max_window: RING,
        rcv_nxt: Seq(NXT),
        rcv_edge: Seq(NXT + RING),
        rcv_acked: Seq(NXT),
        cwnd: 10,
        ssthresh: 100,
        ..Progress::default()
    };
    Saved { agreed, progress }
}

/// The end, and where its program is.
pub struct Bench {
    pub connection: Connection,
    pub positions: Positions,
    pub log: Log,
    pub now: u64,
}

/// A connection in the usual state, with changes. The first acknowledgement has left.
pub fn bench(change: impl FnOnce(&mut Saved)) -> Bench {
    let mut saved = saved();
    change(&mut saved);
    let link = Link { local_mac: MAC, remote_mac: [9; 6], traffic_class: 0, hops: 64, flow_label: 0 };
    let connection = Connection::resume(saved, tuple(), &link, 0).expect("a connection");
    let positions = Positions { written: saved.progress.snd_nxt, read: saved.progress.rcv_nxt };
    let mut bench = Bench { connection, positions, log: Log::default(), now: 0 };
    assert_eq!(bench.send().len(), 1, "a worker begins with an acknowledgement");
    bench.log.0.clear();
    bench
}

/// A segment with the expected numbers, with changes.
pub fn segment<'f>(payload: &'f [u8], change: impl FnOnce(&mut Segment<'f>)) -> Segment<'f> {
    let mut segment = Segment {
        mac: MAC,
        tuple: tuple(),
        is_marked: false,
        seq: Seq(NXT),
        ack: Seq(UNA),
        flags: Flags::ACK,
        window: RING as u16,
        options: Options::default(),
        payload,
    };
    change(&mut segment);
    segment
}

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accepted { received: u32, acknowledged: u32 },
    Discarded(Discarded),
    Returned(Back),
}

/// Accepted, with these numbers of bytes.
pub fn accepted(received: u32, acknowledged: u32) -> Outcome {
    Outcome::Accepted { received, acknowledged }
}

impl Bench {
    pub fn receive(&mut self, segment: Segment) -> Outcome {
        let before = self.connection.saved();
        let outcome = match self.connection.receive(&segment, self.now) {
            Verdict::Accepted(arrival) => {
                let arrived = arrival.commit(&mut self.log);
                return accepted(arrived.received, arrived.acknowledged);
            }
            Verdict::Discarded(why) => Outcome::Discarded(why),
            Verdict::Returned(why) => Outcome::Returned(why),
        };
        assert_eq!(self.connection.saved(), before);
        outcome
    }

    /// The program writes so many bytes.
    pub fn write(&mut self, bytes: u32) {
        self.positions.written = self.positions.written.plus(bytes);
    }

    /// All segments that are due: their headers, and lengths.
    pub fn send(&mut self) -> Vec<(Fields, u32)> {
        self.try_send().expect("the connection is not returned")
    }

    pub fn try_send(&mut self) -> Result<Vec<(Fields, u32)>, Back> {
        let mut sent = Vec::new();
        while let Some(departure) = self.connection.next(self.positions, self.now)? {
            let outgoing = departure.commit(&mut self.log);
            sent.push((outgoing.fields(), outgoing.payload().len));
        }
        Ok(sent)
    }

    /// Lengths of the segments that are due.
    pub fn lengths(&mut self) -> Vec<u32> {
        self.send().iter().map(|(_, len)| *len).collect()
    }

    /// The acknowledgements without data that are due.
    pub fn acks(&mut self) -> Vec<u32> {
        let sent = self.send();
        assert!(sent.iter().all(|(_, len)| *len == 0));
        sent.iter().map(|(fields, _)| fields.ack.0).collect()
    }

    pub fn progress(&self) -> Progress {
        self.connection.saved().progress
    }
}

/// A timestamps option.
pub fn stamped(value: u32) -> Options {
    Options { timestamps: Some(Timestamps { value, echo: 0 }), ..Options::default() }
}
