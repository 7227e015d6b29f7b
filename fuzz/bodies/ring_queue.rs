//! The ring as a queue of bytes: any sizes, any pieces, wrap-around and return to the base.
#![allow(dead_code)] // each engine uses its part

use super::input::Input as Bytes;
use super::ring_direction::Direction;
use sidestep_ring::{Advance, Head};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Write(usize),
    Read(usize),
    Look,
}

impl Op {
    pub fn from_bytes(bytes: &mut Bytes) -> Op {
        match bytes.below(3) {
            0 => Op::Write(bytes.below(100)),
            1 => Op::Read(bytes.below(100)),
            _ => Op::Look,
        }
    }
}

/// Applies the operations to a ring of this size, in a stretch that begins at `from`, and to a queue.
pub fn check(size: usize, from: u64, ops: impl IntoIterator<Item = Op>) {
    let direction = Direction::new(size);
    let (mut output, mut input) = direction.entered(from);
    let mut queue = VecDeque::new();
    let mut next = 0u8;
    for op in ops {
        match op {
            Op::Write(n) => {
                let bytes: Vec<u8> = (0..n).map(|i| next.wrapping_add(i as u8)).collect();
                let n = direction.write(&mut output, &bytes);
                queue.extend(&bytes[..n]);
                next = next.wrapping_add(n as u8);
            }
            Op::Read(n) => {
                let want: Vec<u8> = queue.drain(..n.min(queue.len())).collect();
                assert_eq!(direction.read(&mut input, n), Ok((want, Advance::Done)));
            }
            Op::Look => {
                assert!(matches!(direction.look(&mut output), Ok(Head::At(_))));
                assert_eq!(output.space(size), size - queue.len(), "after a look");
                assert_eq!(output.unread(), queue.len() as u64);
            }
        }
    }
    assert_eq!(output.tail, input.pos + queue.len() as u64);
}

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let (size, from) = (1 << bytes.below(8), bytes.word() >> 2);
    check(size, from, std::iter::from_fn(|| (!bytes.is_empty()).then(|| Op::from_bytes(&mut bytes))));
}
