//! A bulk transfer comes back to its ring after a stall. A peer that really stalls does not make the direction alternate.
#![cfg(not(loom))]

use proptest::prelude::*;
use sidestep_conn::Stall;

/// How long a reader may stay at a position, at first.
const PATIENCE: u64 = 20;
const RING: u64 = 256 << 10;
/// Bytes that the kernel takes without a reader.
const KERNEL: u64 = 4 << 20;
const STEP: u64 = 64 << 10;

#[test]
fn whoever_reads_has_not_stalled() {
    let mut stall = Stall::default();
    assert!((0..1000).all(|now| !stall.is_full(now, now / 19, PATIENCE)));
    // ... but a full ring that nobody reads is noticed in time.
    assert!((1000..1020).all(|now| !stall.is_full(now, 53, PATIENCE)));
    assert!(stall.is_full(1020, 53, PATIENCE));
}

#[test]
fn a_kernel_that_is_full_too_lets_the_ring_try_again_at_once() {
    let mut stall = Stall::default();
    stall.spill(1000, 10, RING);
    assert!(!stall.permits(1000));
    stall.kernel_is_full(1001);
    assert!(stall.permits(1001));
    assert!(!stall.is_full(0, 0, PATIENCE));
    assert!(!stall.is_full(2 * PATIENCE - 1, 0, PATIENCE), "the reader is known to be slow whatever carries");
    assert!(stall.is_full(2 * PATIENCE, 0, PATIENCE));
}

#[test]
fn a_kernel_that_takes_everything_keeps_the_ring_away_for_longer_each_time() {
    let (mut stall, mut pos, mut gaps) = (Stall::default(), 0, vec![]);
    for _ in 0..12 {
        stall.spill(pos, RING, RING);
        let from = pos;
        while !stall.permits(pos) {
            pos += 4096;
        }
        gaps.push(pos - from);
    }
    assert!(gaps.windows(2).all(|pair| pair[1] == (4 * pair[0]).min(64 << 20)), "{gaps:?}");
}

#[test]
fn patience_has_an_end() {
    let mut stall = Stall::default();
    for pos in 0..100 {
        stall.spill(pos, 0, RING);
        stall.kernel_is_full(pos);
    }
    assert!(!stall.is_full(0, 0, PATIENCE));
    assert!(stall.is_full(8 * PATIENCE, 0, PATIENCE));
    // The kernel takes everything: from now on the ring is given up as early as at first.
    stall.spill(100, 0, RING);
    stall.spill(200, 0, RING);
    assert!(!stall.is_full(0, 0, PATIENCE));
    assert!(stall.is_full(PATIENCE, 0, PATIENCE));
}

/// A transfer. The writer waits for bytes that do not fit.
#[derive(Default)]
struct Transfer {
    stall: Stall,
    now: u64,
    /// Positions of the writer and the reader; where the present stretch began, if there is one.
    pos: u64,
    read: u64,
    stretch: Option<u64>,
    /// Position at which the last stretch ended. A reader that has read up to there has noticed the end.
    ended: u64,
    stalls: u32,
    by_ring: u64,
}

impl Transfer {
    /// One millisecond: the writer writes as much as it can, up to `wants`; the reader reads up to `reads`.
    fn step(&mut self, wants: u64, reads: u64) {
        for _ in 0..wants / STEP {
            if !self.write() {
                break;
            }
        }
        let unread = self.pos - self.read;
        // After the kernel's bytes the reader continues in the ring.
        self.read += unread.min(reads);
        self.now += 1;
    }

    fn write(&mut self) -> bool {
        if self.stretch.is_none() && self.stall.permits(self.pos) && self.read >= self.ended {
            self.stretch = Some(self.pos);
        }
        let Some(from) = self.stretch else {
            return if self.pos - self.read + STEP > KERNEL {
                self.stall.kernel_is_full(self.pos);
                false
            } else {
                self.pos += STEP;
                true
            };
        };
        let in_ring = self.pos - self.read.max(from);
        if in_ring + STEP <= RING {
            self.stall.is_over();
            (self.pos, self.by_ring) = (self.pos + STEP, self.by_ring + STEP);
            return true;
        }
        if self.stall.is_full(self.now, self.read, PATIENCE) {
            self.stall.spill(self.pos, self.pos - from, RING);
            // Unread bytes go by kernel.
            (self.stretch, self.ended) = (None, self.pos);
            (self.by_ring, self.stalls) = (self.by_ring - in_ring, self.stalls + 1);
        }
        false
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A writer that always has more; a reader that now and then pauses, always for less than the patience.
    #[test]
    fn a_bulk_transfer_comes_back(pauses in [1u64..150, 1u64..150, 1u64..150], every in 2u64..64, speed in 1u64..64) {
        let (mut transfer, mut next) = (Transfer::default(), every << 20);
        let mut pauses = pauses.into_iter().cycle();
        let mut busy_until = 0;
        while transfer.pos < 400 << 20 {
            let reads = if transfer.now < busy_until { 0 } else { speed * STEP };
            transfer.step(u64::MAX, reads);
            if transfer.read >= next {
                (busy_until, next) = (transfer.now + pauses.next().unwrap_or(0), next + (every << 20));
            }
        }
        prop_assert!(transfer.by_ring > transfer.pos * 3 / 4, "{} of {} by ring", transfer.by_ring, transfer.pos);
        // Each stall copies the bytes of a whole ring.
        prop_assert!(u64::from(transfer.stalls) * RING < transfer.pos / 10, "{} stalls", transfer.stalls);
    }

    /// A reader that looks rarely, and a writer whose bursts fit into the kernel: hardly any burst waits.
    #[test]
    fn bursts_that_the_kernel_takes_are_not_held_up(burst in 5u64..60, every in 200u64..2000, bursts in 10u64..400) {
        let mut transfer = Transfer::default();
        let mut delayed = 0;
        for _ in 0..bursts {
            let (from, stalls) = (transfer.pos, transfer.stalls);
            while transfer.pos < from + burst * STEP {
                transfer.step(from + burst * STEP - transfer.pos, 0);
            }
            delayed += u64::from(transfer.stalls > stalls);
            transfer.now += every;
            transfer.read = transfer.pos;
        }
        let least = 8 + transfer.pos / (32 << 20);
        prop_assert!(delayed <= least, "{delayed} of {bursts} bursts, {} bytes", transfer.pos);
    }

    /// A reader that pauses for seconds: at most one stall for each pause, and no pause of the writer is longer than the
    /// patience while the kernel has room.
    #[test]
    fn a_peer_that_stalls_is_left_to_the_kernel(pause in 500u64..3000, reads in 1u64..100, rounds in 2u32..40) {
        let mut transfer = Transfer::default();
        for round in 0..rounds {
            for _ in 0..pause {
                transfer.step(u64::MAX, 0);
            }
            prop_assert!(transfer.stalls <= round + 1, "{} stalls in {} rounds", transfer.stalls, round + 1);
            prop_assert!(transfer.pos - transfer.read + STEP > KERNEL.min(transfer.pos), "the kernel's room is used");
            transfer.step(u64::MAX, reads * STEP);
        }
    }
}
