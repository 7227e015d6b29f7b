//! What happens to a segment.

use crate::chance::Chance;
use std::time::Duration;

const ETHERNET: usize = 14;

/// How often each harm is done, in segments of 10,000.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Lost.
    #[arg(long, default_value_t = 0)]
    pub lose: u32,
    /// Sent twice.
    #[arg(long, default_value_t = 0)]
    pub double: u32,
    /// Overtaken by those that follow within half a millisecond.
    #[arg(long, default_value_t = 0)]
    pub reorder: u32,
    /// One bit behind the Ethernet header is changed.
    #[arg(long, default_value_t = 0)]
    pub damage: u32,
    /// Cut anywhere behind the Ethernet header.
    #[arg(long, default_value_t = 0)]
    pub cut: u32,
    /// Marked by a router that is congested (CE of RFC 3168), if its sender understands that.
    #[arg(long, default_value_t = 0)]
    pub mark: u32,
    /// Microseconds by which each segment is late.
    #[arg(long, default_value_t = 0)]
    pub delay: u64,
    /// At most so many more, by chance. The order stays.
    #[arg(long, default_value_t = 0)]
    pub jitter: u64,
}

/// How often each was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub segments: u64,
    pub lost: u64,
    pub doubled: u64,
    pub reordered: u64,
    pub damaged: u64,
    pub cut: u64,
    pub marked: u64,
}

impl Done {
    pub fn add(&mut self, other: &Done) {
        self.segments += other.segments;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.reordered += other.reordered;
        self.damaged += other.damaged;
        self.cut += other.cut;
        self.marked += other.marked;
    }

    pub fn to_json(self) -> serde_json::Value {
        let Done { segments, lost, doubled, reordered, damaged, cut, marked } = self;
        serde_json::json!({
            "segments": segments, "lost": lost, "doubled": doubled, "reordered": reordered, "damaged": damaged, "cut": cut,
            "marked": marked,
        })
    }
}

/// How a frame goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// How often it is sent.
    pub copies: u32,
    pub delay: Duration,
    /// Whether those that follow may overtake it.
    pub is_overtaken: bool,
}

impl Fate {
    pub const UNHARMED: Fate = Fate { copies: 1, delay: Duration::ZERO, is_overtaken: false };
}

/// How long a segment waits that others overtake.
const OVERTAKEN: Duration = Duration::from_micros(500);

/// Harms a TCP segment.
pub fn harm(frame: &mut Vec<u8>, rates: &Rates, chance: &mut Chance, done: &mut Done) -> Fate {
    done.segments += 1;
    if chance.hits(rates.lose) {
        done.lost += 1;
        return Fate { copies: 0, ..Fate::UNHARMED };
    }
    if rates.mark > 0 && chance.hits(rates.mark) && mark(frame) {
        done.marked += 1;
    }
    if chance.hits(rates.damage) {
        let at = ETHERNET + chance.below((frame.len() - ETHERNET) as u64) as usize;
        frame[at] ^= 1 << chance.below(8);
        done.damaged += 1;
    }
    if chance.hits(rates.cut) {
        frame.truncate(ETHERNET + chance.below((frame.len() - ETHERNET) as u64) as usize);
        done.cut += 1;
    }
    let jitter = if rates.jitter > 0 { chance.below(rates.jitter) } else { 0 };
    let mut fate = Fate { delay: Duration::from_micros(rates.delay + jitter), ..Fate::UNHARMED };
    if chance.hits(rates.double) {
        done.doubled += 1;
        fate.copies = 2;
    }
    if chance.hits(rates.reorder) {
        done.reordered += 1;
        (fate.is_overtaken, fate.delay) = (true, fate.delay + OVERTAKEN);
    }
    fate
}

/// CE, both bits of the field.
const MARKED: u8 = 3;

/// Marks the packet. False: its sender does not understand that, or it is marked already.
fn mark(frame: &mut [u8]) -> bool {
    let is_capable = |bits: u8| bits & MARKED != 0 && bits & MARKED != MARKED;
    match frame.get(12..ETHERNET + 20) {
        Some([8, 0, _, bits, ..]) if is_capable(*bits) => {
            let (before, after) = (*bits & MARKED, MARKED);
            frame[ETHERNET + 1] |= MARKED;
            subtract_from_checksum(frame, u16::from(after - before));
            true
        }
        // The low half of the class comes first in its byte.
        Some([0x86, 0xdd, _, bits, ..]) if is_capable(*bits >> 4) => {
            frame[ETHERNET + 1] |= MARKED << 4;
            true
        }
        _ => false,
    }
}

/// A word of the IPv4 header has grown by so much (RFC 1624).
fn subtract_from_checksum(frame: &mut [u8], grown: u16) {
    let at = ETHERNET + 10;
    let checksum = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (less, borrows) = checksum.overflowing_sub(grown);
    frame[at..at + 2].copy_from_slice(&(less - u16::from(borrows)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Vec<u8> {
        (0..80).collect()
    }

    #[test]
    fn what_is_lost_is_not_sent() {
        let rates = Rates { lose: 10_000, ..Rates::default() };
        let (mut chance, mut done) = (Chance::new(1), Done::default());
        assert_eq!(harm(&mut segment(), &rates, &mut chance, &mut done).copies, 0);
        assert_eq!((done.segments, done.lost), (1, 1));
    }

    #[test]
    fn damage_changes_one_bit_behind_the_ethernet_header() {
        let rates = Rates { damage: 10_000, ..Rates::default() };
        let (mut chance, mut done) = (Chance::new(1), Done::default());
        for _ in 0..1000 {
            let (before, mut after) = (segment(), segment());
            assert_eq!(harm(&mut after, &rates, &mut chance, &mut done).copies, 1);
            let changed: u32 = before.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert!(changed == 1 && before[..ETHERNET] == after[..ETHERNET]);
        }
    }

    #[test]
    fn a_cut_leaves_the_ethernet_header() {
        let rates = Rates { cut: 10_000, ..Rates::default() };
        let (mut chance, mut done) = (Chance::new(1), Done::default());
        for _ in 0..1000 {
            let mut frame = segment();
            let _ = harm(&mut frame, &rates, &mut chance, &mut done);
            assert!((ETHERNET..80).contains(&frame.len()));
        }
    }

    /// The sum of an IPv4 header is 0xffff.
    fn sum(header: &[u8]) -> u32 {
        let all: u32 = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        (all & 0xffff) + (all >> 16)
    }

    #[test]
    fn a_mark_leaves_a_right_checksum() {
        for bits in 0..=3 {
            for rest in [0u8, 1, 0xfe, 0xff] {
                let mut frame = vec![0; ETHERNET + 40];
                (frame[12], frame[ETHERNET], frame[ETHERNET + 1], frame[ETHERNET + 9]) = (8, 0x45, bits, rest);
                let checksum = !(sum(&frame[ETHERNET..ETHERNET + 20]) as u16);
                frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
                assert_eq!(mark(&mut frame), bits == 1 || bits == 2);
                assert_eq!(sum(&frame[ETHERNET..ETHERNET + 20]), 0xffff);
            }
        }
    }

    #[test]
    fn packets_of_ipv6_are_marked_in_their_class() {
        let mut frame = vec![0; ETHERNET + 60];
        (frame[12], frame[13], frame[ETHERNET], frame[ETHERNET + 1]) = (0x86, 0xdd, 0x60, 0x2f);
        assert!(mark(&mut frame) && !mark(&mut frame));
        assert_eq!((frame[ETHERNET], frame[ETHERNET + 1]), (0x60, 0x3f));
    }
}
