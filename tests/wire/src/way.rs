//! One direction.

use crate::flows::Flows;
use crate::harm::{Done, Fate, Rates, harm};
use crate::port::{LONGEST_FRAME, Port};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::time::Instant;

/// Frames of one direction, on their way.
pub struct Way {
    rates: Rates,
    flows: Flows,
    /// Those that are late: when each leaves, and its number, which keeps the order.
    late: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    /// When the last one leaves that nobody overtakes.
    last: Instant,
    number: u64,
    buffer: Vec<u8>,
    pub done: Done,
}

impl Way {
    pub fn new(rates: Rates, seed: u64) -> Way {
        Way {
            rates,
            flows: Flows::new(seed),
            late: BinaryHeap::new(),
            last: Instant::now(),
            number: 0,
            buffer: vec![0; LONGEST_FRAME],
            done: Done::default(),
        }
    }

    /// Forwards what has come and what is due.
    pub fn forward(&mut self, from: &Port, to: &Port) -> io::Result<()> {
        while let Some(frame) = from.receive(&mut self.buffer)? {
            self.send(frame, to)?;
        }
        let now = Instant::now();
        while let Some(Reverse((at, ..))) = self.late.peek()
            && *at <= now
            && let Some(Reverse((.., frame))) = self.late.pop()
        {
            to.send(&frame)?;
        }
        Ok(())
    }

    fn send(&mut self, mut frame: Vec<u8>, to: &Port) -> io::Result<()> {
        let fate = match self.flows.meet(&frame) {
            Some(mut chance) => harm(&mut frame, &self.rates, &mut chance, &mut self.done),
            None => Fate::UNHARMED,
        };
        if fate.delay.is_zero() {
            return (0..fate.copies).try_for_each(|_| to.send(&frame));
        }
        let due = Instant::now() + fate.delay;
        let at = if fate.is_overtaken { due } else { due.max(self.last) };
        for _ in 0..fate.copies {
            self.number += 1;
            self.late.push(Reverse((at, self.number, frame.clone())));
        }
        if !fate.is_overtaken {
            self.last = at;
        }
        Ok(())
    }

    /// When the next frame is due.
    pub fn next(&self) -> Option<Instant> {
        self.late.peek().map(|Reverse((at, ..))| *at)
    }
}
