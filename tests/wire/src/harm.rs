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
}

impl Done {
    pub fn add(&mut self, other: &Done) {
        self.segments += other.segments;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.reordered += other.reordered;
        self.damaged += other.damaged;
        self.cut += other.cut;
    }

    pub fn to_json(self) -> serde_json::Value {
        let Done { segments, lost, doubled, reordered, damaged, cut } = self;
        serde_json::json!({
            "segments": segments, "lost": lost, "doubled": doubled, "reordered": reordered, "damaged": damaged, "cut": cut,
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
}
