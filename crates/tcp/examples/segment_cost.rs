//! What a message costs in the fast path, without I/O: `cargo run --release -p sidestep-tcp --example segment_cost`.
//!
//! Two ends exchange requests and responses by memory. A message is one segment that leaves (positions, decision, publication,
//! headers, copy, checksum) and arrives (parsing, checksum, decision, copy, publication). Its acknowledgement goes with the
//! answer.

use sidestep_tcp::{
    Agreed, Checksums, Connection, Link, Memory, Positions, Progress, Saved, Segment, Seq, Tuple, Verdict,
};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const RING: usize = 1 << 18;
/// The quickest of these batches counts: others share the machine.
const BATCHES: u32 = 50;
const ROUNDS: u32 = 20_000;

struct Shared {
    ring: Vec<u8>,
    record: [AtomicU64; Progress::WORDS],
}

impl Memory for Shared {
    fn put(&mut self, at: Seq, bytes: &[u8]) {
        let from = at.0 as usize & (RING - 1);
        let first = bytes.len().min(RING - from);
        self.ring[from..from + first].copy_from_slice(&bytes[..first]);
        self.ring[..bytes.len() - first].copy_from_slice(&bytes[first..]);
    }

    fn publish(&mut self, progress: &Progress) {
        for (word, value) in self.record.iter().zip(progress.words()) {
            word.store(value, Ordering::Release);
        }
    }
}

struct End {
    connection: Connection,
    shared: Shared,
    send_ring: Vec<u8>,
    positions: Positions,
}

impl End {
    fn new(tuple: Tuple) -> End {
        let agreed = Agreed {
            send_ring: RING as u32,
            receive_ring: RING as u32,
            mss: 1448,
            send_scale: 7,
            receive_scale: 7,
            options: Agreed::TIMESTAMPS,
            ..Agreed::default()
        };
        let edge = Seq(1 << 16);
        let progress = Progress {
            snd_edge: edge,
            rcv_edge: edge,
            max_window: edge.0,
            cwnd: 10,
            ssthresh: i32::MAX as u32,
            ..Progress::default()
        };
        let link = Link { local_mac: [2; 6], remote_mac: [2; 6], traffic_class: 0, hops: 64, flow_label: 0 };
        End {
            connection: Connection::resume(Saved { agreed, progress }, tuple, &link, 0).expect("a connection"),
            shared: Shared { ring: vec![0; RING], record: Default::default() },
            send_ring: vec![7; RING],
            positions: Positions { written: Seq(0), read: Seq(0) },
        }
    }

    #[inline(never)]
    fn send(&mut self, frame: &mut [u8], now: u64) -> Option<usize> {
        let departure = self.connection.next(self.positions, now).expect("a regular connection")?;
        let outgoing = departure.commit(&mut self.shared);
        let from = outgoing.payload().at.0 as usize & (RING - 1);
        let first = (outgoing.payload().len as usize).min(RING - from);
        let rest = outgoing.payload().len as usize - first;
        Some(outgoing.write(frame, [&self.send_ring[from..from + first], &self.send_ring[..rest]]).expect("room"))
    }

    #[inline(never)]
    fn receive(&mut self, frame: &[u8], checksums: Checksums, now: u64) {
        let segment = Segment::parse(frame, checksums).expect("a segment");
        let Verdict::Accepted(arrival) = self.connection.receive(&segment, now) else { panic!("it is not accepted") };
        let arrived = arrival.commit(&mut self.shared);
        self.positions.read = self.positions.read.plus(arrived.received);
    }
}

/// Nanoseconds for a message of this many bytes from one end to the other.
fn cost(bytes: u32, checksums: Checksums) -> f64 {
    let address = |text: &str| text.parse().expect("an address");
    let tuple = Tuple::new(address("192.0.2.1:1"), address("192.0.2.2:2"));
    let mut ends = [End::new(tuple), End::new(tuple.reversed())];
    let batches = (0..BATCHES).map(|batch| batch_cost(&mut ends, batch, bytes, checksums));
    batches.fold(f64::INFINITY, f64::min)
}

fn batch_cost(ends: &mut [End; 2], batch: u32, bytes: u32, checksums: Checksums) -> f64 {
    let mut frame = [0u8; 2048];
    let start = Instant::now();
    for round in batch * ROUNDS..(batch + 1) * ROUNDS {
        let me = round as usize & 1;
        ends[me].positions.written = ends[me].positions.written.plus(bytes);
        let now = u64::from(round);
        while let Some(len) = ends[me].send(&mut frame, now) {
            ends[1 - me].receive(black_box(&frame[..len]), checksums, now);
        }
    }
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

fn main() {
    for bytes in [1, 128, 1024, 1448] {
        let [verified, partial] = [Checksums::Complete, Checksums::Verified].map(|checksums| cost(bytes, checksums));
        println!("{bytes} bytes: {verified:.0} ns sent and received, {partial:.0} ns if the device verifies checksums");
    }
}
