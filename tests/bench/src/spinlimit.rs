//! The fastest round trip of a 64-byte message between two cores of this machine: the message
//! on its cache line, its number on another, both sides spinning. No transport that carries
//! messages through memory can be faster.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::args::Args;
use crate::{clock, net};

/// Alone on its cache line, and on its neighbour that the prefetcher drags along.
#[repr(align(128))]
#[derive(Default)]
struct Line<T>(T);

/// One direction.
#[derive(Default)]
struct Lane {
    message: Line<[AtomicU64; 8]>,
    number: Line<AtomicU64>,
}

impl Lane {
    fn put(&self, message: &[u64; 8], number: u64) {
        for (slot, word) in self.message.0.iter().zip(message) {
            slot.store(*word, Ordering::Relaxed);
        }
        // SYNC ball: what was stored above is seen by whoever sees the number in `take`.
        self.number.0.store(number, Ordering::Release);
    }

    /// The message with this number, once it is there.
    fn take(&self, number: u64) -> Option<[u64; 8]> {
        // SYNC ball
        let there = self.number.0.load(Ordering::Acquire) == number;
        there.then(|| std::array::from_fn(|at| self.message.0[at].load(Ordering::Relaxed)))
    }
}

pub fn run(args: &Args) -> Result<(), String> {
    let length = args.seconds()?;
    args.finish()?;
    let (there, back, done) = (Lane::default(), Lane::default(), AtomicBool::new(false));
    let times = std::thread::scope(|scope| {
        scope.spawn(|| echo(&there, &back, &done));
        let mut number = 0;
        let mut message = [0x42; 8];
        let times = clock::repeat(length, 64, || {
            number += 1;
            there.put(&message, number);
            message = loop {
                match back.take(number) {
                    Some(message) => break message,
                    None => std::hint::spin_loop(),
                }
            };
            Ok::<(), Infallible>(())
        });
        done.store(true, Ordering::Relaxed);
        times
    });
    let Ok(times) = times;
    net::say(&format!("{{{}}}", times.json_us()))
}

fn echo(there: &Lane, back: &Lane, done: &AtomicBool) {
    let mut number = 1;
    while !done.load(Ordering::Relaxed) {
        match there.take(number) {
            Some(message) => {
                back.put(&message, number);
                number += 1;
            }
            None => std::hint::spin_loop(),
        }
    }
}
