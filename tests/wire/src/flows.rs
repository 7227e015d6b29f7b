//! Which bytes of which stream a segment carries: the same bytes meet the same harm in each run, whoever sends them, and whatever
//! numbers the connections have.

use crate::chance::Chance;
use std::collections::HashMap;

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const SYN: u8 = 2;

/// Bytes of a segment by which its stream is told apart from others.
const MARK: usize = 8;

/// Source and target port.
type Flow = [u8; 4];

/// Streams of one direction.
#[derive(Default)]
pub struct Flows {
    seed: u64,
    /// Sequence number of the SYN.
    began: HashMap<Flow, u32>,
    /// How often such a segment of a flow has passed: by its place in the stream, and whether it has bytes.
    passed: HashMap<(Flow, u32, bool), u64>,
}

impl Flows {
    pub fn new(seed: u64) -> Flows {
        Flows { seed, ..Flows::default() }
    }

    /// The chance that a segment meets. `None`: it is no segment, or one of a handshake.
    pub fn meet(&mut self, frame: &[u8]) -> Option<Chance> {
        let (tcp, payload) = tcp(frame)?;
        let has_bytes = !payload.is_empty();
        let flow: Flow = *tcp.first_chunk()?;
        let seq = u32::from_be_bytes(*tcp.get(4..8)?.first_chunk()?);
        if tcp.get(13)? & SYN != 0 {
            // Ports are used again.
            self.began.insert(flow, seq);
            self.passed.retain(|(of, ..), _| *of != flow);
            return None;
        }
        let place = seq.wrapping_sub(*self.began.get(&flow)?);
        let passed = self.passed.entry((flow, place, has_bytes)).or_default();
        *passed += 1;
        let mut chance = Chance::new(self.seed);
        for value in [place.into(), has_bytes.into(), *passed] {
            chance = chance.with(value);
        }
        // Tells the streams apart.
        Some(payload.iter().take(MARK).fold(chance, |chance, byte| chance.with((*byte).into())))
    }
}

/// The segment, and its bytes, in IPv4 without options and IPv6 without extension headers: all that the hosts send.
fn tcp(frame: &[u8]) -> Option<(&[u8], &[u8])> {
    let (at, end) = match (frame.get(12..14)?, frame.get(ETHERNET)?) {
        ([0x08, 0x00], 0x45) if *frame.get(ETHERNET + 9)? == TCP => (20, length(frame, 2)?),
        ([0x86, 0xdd], _) if *frame.get(ETHERNET + 6)? == TCP => (40, 40 + length(frame, 4)?),
        _ => return None,
    };
    let tcp = frame.get(ETHERNET + at..ETHERNET + end)?;
    Some((tcp, tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?))
}

fn length(frame: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(*frame.get(ETHERNET + at..)?.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(port: u8, seq: u32, flags: u8, bytes: usize) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET + 40 + bytes + 6];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[16..18].copy_from_slice(&(40 + bytes as u16).to_be_bytes());
        frame[ETHERNET + 9] = TCP;
        frame[34] = port;
        frame[38..42].copy_from_slice(&seq.to_be_bytes());
        (frame[46], frame[47]) = (0x50, flags);
        frame
    }

    #[test]
    fn the_same_bytes_meet_the_same_chance_whatever_their_numbers() {
        let met = |port, first: u32| {
            let mut flows = Flows::new(7);
            assert!(flows.meet(&segment(port, first, SYN, 0)).is_none());
            let places = [(1, 5), (1, 5), (1, 0), (6, 5)];
            places.map(|(at, bytes)| {
                flows.meet(&segment(port, first.wrapping_add(at), 16, bytes)).expect("one").below(1 << 40)
            })
        };
        let once = met(3, 1000);
        assert_eq!(once, met(9, u32::MAX - 2));
        assert!((1..4).all(|n| once[n] != once[n - 1]), "{once:?}");
    }

    #[test]
    fn what_is_no_segment_of_a_known_stream_meets_none() {
        let mut flows = Flows::new(7);
        for frame in [segment(3, 5, 16, 9), vec![0; 60], vec![8; 10], Vec::new()] {
            assert!(flows.meet(&frame).is_none());
        }
    }
}
