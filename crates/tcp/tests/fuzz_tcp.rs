//! The fuzz targets `tcp_pair` and `segments`, briefly and always alike.

#[path = "../../../fuzz/bodies/input.rs"]
mod input;
#[path = "../../../fuzz/bodies/repeat.rs"]
mod repeat;
#[path = "../../../fuzz/bodies/segments.rs"]
mod segments;
#[path = "../../../fuzz/bodies/tcp_end.rs"]
mod tcp_end;
#[path = "../../../fuzz/bodies/tcp_pair.rs"]
mod tcp_pair;
#[path = "../../../fuzz/bodies/tcp_store.rs"]
mod tcp_store;

use proptest::prelude::*;
use std::collections::BTreeMap;
use tcp_pair::{Ending, Trouble};

/// How the runs ended.
#[derive(Debug, Default)]
struct Tally {
    complete: u32,
    bytes: u64,
    kills: u32,
    /// Runs that were complete in spite of kills.
    complete_after_kills: u32,
    returned: BTreeMap<&'static str, u32>,
}

fn tally(runs: usize, trouble: Trouble) -> Tally {
    let mut tally = Tally::default();
    repeat::repeat(runs, 1500, |data| tally.add(tcp_pair::run(data, trouble)));
    println!("{trouble:?}: {tally:?}");
    tally
}

impl Tally {
    fn add(&mut self, ending: Ending) {
        match ending {
            Ending::Complete { bytes, kills } => {
                self.complete += 1;
                self.bytes += u64::from(bytes);
                self.kills += kills;
                self.complete_after_kills += u32::from(kills > 0);
            }
            Ending::Returned { why, kills } => {
                self.kills += kills;
                *self.returned.entry(why.name()).or_default() += 1;
            }
        }
    }
}

#[test]
fn two_ends_in_peace() {
    let tally = tally(1_000, Trouble::Peace);
    assert!(tally.complete > 800, "{tally:?}");
}

#[test]
fn workers_are_killed_at_any_store() {
    let tally = tally(1_000, Trouble::Kills);
    assert!(tally.complete_after_kills > 400, "{tally:?}");
}

#[test]
fn a_wire_that_loses_doubles_reorders_and_damages() {
    let tally = tally(2_000, Trouble::War);
    for reason in ["gap", "timeout"] {
        assert!(tally.returned.get(reason).is_some_and(|runs| *runs > 5), "{reason}: {tally:?}");
    }
}

#[test]
fn hostile_segments() {
    let mut seen = segments::Seen::default();
    repeat::repeat(20_000, 2000, |data| segments::run_counting(data, &mut seen));
    println!("{seen:?}");
    let all = sidestep_tcp::Back::ALL.iter().filter(|back| !segments::NOT_BY_A_SEGMENT.contains(back));
    let missing: Vec<_> = all.filter(|back| !seen.returned.contains_key(back)).collect();
    assert!(missing.is_empty(), "no segment has led to {missing:?}");
    assert_eq!(seen.discarded.len(), 10, "each way to discard a segment: {:?}", seen.discarded);
    assert!(seen.accepted > 10_000, "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The same, with choices that proptest makes, and makes shorter when they fail.
    #[test]
    fn two_ends_with_any_choices(data in proptest::collection::vec(any::<u8>(), 0..600), trouble in 0usize..3) {
        tcp_pair::run(&data, [Trouble::Peace, Trouble::Kills, Trouble::War][trouble]);
    }
}
