//! A peer streams both ways while the connection is taken and given back 200 times. The peer's packets are dropped meanwhile, so
//! that it must retransmit. Every byte is compared.

use crate::common::pattern::mix;
use crate::common::*;
use rustix::event::PollFlags;
use sidestep_repair::{Queues, TakeError, give_back, take};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const SWITCHES: u64 = 200;

/// The near end of both streams.
struct Near {
    stream: TcpStream,
    to_far: Expected,
    to_near: Expected,
    buffer: Vec<u8>,
    random: u64,
}

impl Near {
    fn random(&mut self, below: u64) -> u64 {
        self.random += 1;
        mix(self.random) % below
    }

    /// Reads and writes in pieces of random size, until enough bytes have passed, or the time is over.
    fn pump(&mut self, enough: u64, most: Duration) {
        let (begin, end) = (self.to_near.read + self.to_far.written, Instant::now() + most);
        while self.to_near.read + self.to_far.written < begin + enough && Instant::now() < end {
            let (read, write) = (self.random(20_000) as usize + 1, self.random(20_000) as usize + 1);
            let moved = self.to_near.read(&self.stream, &mut self.buffer[..read]);
            assert_ne!(moved, Some(0), "an early end");
            if self.to_far.write(&self.stream, write) == 0 && moved.is_none() {
                wait(&self.stream, PollFlags::IN | PollFlags::OUT, Duration::from_millis(10));
            }
        }
    }
}

fn switch(wire: &Wire, near: &TcpStream) -> u64 {
    wire.close();
    let taken = match take(near) {
        // A segment that had passed the gate before it closed.
        Err(TakeError::Moved) => {
            wire.open();
            return 0;
        }
        taken => taken.expect("take"),
    };
    give_back(near, &taken.state, &Queues::new(&taken.unread, &taken.unacknowledged)).expect("give back");
    no_error(near);
    wire.open();
    1
}

fn streams(shape: Shape) {
    let wire = Wire::shaped(&shape);
    let (near, far) = wire.connect(&shape);
    near.set_nonblocking(true).expect("O_NONBLOCK");
    far.set_nonblocking(true).expect("O_NONBLOCK");
    let (to_far, to_near) = (Expected::new(3), Expected::new(4));
    let mut near = Near { stream: near, to_far, to_near, buffer: vec![0; 1 << 16], random: 0 };
    let (ended, begin) = (std::sync::atomic::AtomicBool::new(false), Instant::now());
    let (mut written, mut read) = (Expected::new(4), Expected::new(3));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 16];
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                let moved = read.read(&far, &mut buffer);
                assert_ne!(moved, Some(0), "an early end");
                if written.write(&far, 30_000) == 0 && moved.is_none() {
                    wait(&far, PollFlags::IN | PollFlags::OUT, Duration::from_millis(10));
                }
            }
        });
        let mut switches = 0;
        while switches < SWITCHES {
            assert!(begin.elapsed() < PATIENCE, "only {switches} switches within {PATIENCE:?}");
            let enough = near.random(200_000);
            near.pump(enough, Duration::from_millis(20));
            switches += switch(&wire, &near.stream);
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    near.to_near.written = written.written;
    near.to_far.read = read.read;
    println!(
        "{shape:?}: {SWITCHES} switches in {:?}; {} bytes to the near end, {} to the far end",
        begin.elapsed(),
        near.to_near.read,
        near.to_far.read
    );
    assert!(near.to_near.read > 0 && near.to_far.read > 0, "both directions must move");
    finish(near.stream, far, &mut near.to_far, &mut near.to_near, 100_000);
}

#[test]
fn ipv4() {
    streams(USUAL);
}

#[test]
fn ipv4_large_segments() {
    streams(Shape { mtu: 9000, role: Role::Dials, ..USUAL });
}

#[test]
fn ipv6() {
    streams(Shape { family: Family::V6, role: Role::Dials, ..USUAL });
}

#[test]
fn ipv6_large_segments_without_timestamps() {
    streams(Shape { family: Family::V6, mtu: 9000, timestamps: false, ..USUAL });
}

#[test]
fn mapped() {
    streams(Shape { family: Family::Mapped, ..USUAL });
}

#[test]
fn mapped_without_sack() {
    streams(Shape { family: Family::Mapped, role: Role::Dials, sack: false, ..USUAL });
}

#[test]
fn without_scaling() {
    streams(Shape { scaling: false, ..USUAL });
}

#[test]
fn without_any_option() {
    streams(Shape { timestamps: false, scaling: false, sack: false, ..USUAL });
}
