//! Weighted random choice by a table: one choice costs two random numbers and one look-up (Vose's alias method).

use crate::plane::Slot;

/// The slots for backends with weights. A backend with weight 0 is never chosen. With equal weights each slot has a single
/// backend. Empty if nothing can be chosen.
pub fn slots(weighted: &[(u32, u32)]) -> Vec<Slot> {
    let chosen: Vec<_> = weighted.iter().filter(|(_, weight)| *weight > 0).copied().collect();
    let total: u64 = chosen.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let count = chosen.len() as u64;
    // In units of `total`: a backend of average weight fills exactly one slot.
    let mut shares: Vec<u64> = chosen.iter().map(|(_, weight)| u64::from(*weight) * count).collect();
    let mut slots: Vec<Slot> = chosen.iter().map(|(backend, _)| Slot::own(*backend)).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..slots.len()).partition(|i| shares[*i] < total);
    while let Some(poor) = small.pop() {
        // Shares are integers whose sum fills all slots exactly, so while a slot is short, some other has a surplus.
        let Some(rich) = large.pop() else { break };
        slots[poor].other = chosen[rich].0;
        slots[poor].own = part(shares[poor], total);
        shares[rich] -= total - shares[poor];
        if shares[rich] < total { small.push(rich) } else { large.push(rich) }
    }
    slots
}

/// `share` / `total` of 2^32, as the greatest random number that still belongs to the share.
fn part(share: u64, total: u64) -> u32 {
    let scaled = (u128::from(share) << 32) / u128::from(total);
    (scaled as u64).saturating_sub(1).min(u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The probability of each backend, by the programs' rule.
    fn chances(slots: &[Slot]) -> BTreeMap<u32, f64> {
        let mut chances = BTreeMap::new();
        for slot in slots {
            let own = (f64::from(slot.own) + 1.0) / 2f64.powi(32) / slots.len() as f64;
            *chances.entry(slot.backend).or_insert(0.0) += own;
            *chances.entry(slot.other).or_insert(0.0) += 1.0 / slots.len() as f64 - own;
        }
        chances
    }

    #[test]
    fn equal_weights_need_no_other() {
        assert_eq!(slots(&[(5, 2), (6, 2)]), [Slot::own(5), Slot::own(6)]);
    }

    #[test]
    fn without_weight_there_is_no_slot() {
        assert_eq!(slots(&[(5, 0)]), []);
        assert_eq!(slots(&[(5, 0), (6, 1)]), [Slot::own(6)]);
    }

    proptest! {
        #[test]
        fn chances_are_as_the_weights(weights in prop::collection::vec(0u32..1000, 1..50)) {
            let weighted: Vec<_> = weights.iter().enumerate().map(|(i, w)| (i as u32 + 1, *w)).collect();
            let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
            let found = chances(&slots(&weighted));
            for (backend, weight) in weighted {
                let expected = if total == 0 { 0.0 } else { f64::from(weight) / total as f64 };
                prop_assert!((found.get(&backend).unwrap_or(&0.0) - expected).abs() < 1e-6);
            }
        }
    }
}
