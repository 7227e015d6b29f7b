//! What becomes of each kind of segment.

mod common;

use common::*;
use sidestep_tcp::{Agreed, Back, Discarded, Flags, Options, Segment, Seq};

fn plain() -> Bench {
    bench(|_| {})
}

/// With 300 bytes in flight.
fn sending() -> Bench {
    let mut bench = plain();
    bench.write(300);
    assert_eq!(bench.lengths(), [100, 100, 100]);
    bench
}

#[test]
fn bytes_are_copied_before_they_are_published() {
    let mut bench = sending();
    bench.log.0.clear();
    let data = segment(b"hello", |it| it.ack = Seq(UNA + 100));
    assert_eq!(bench.receive(data), accepted(5, 100));
    let stored = &bench.log.0;
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[0], Stored::Put(Seq(NXT), b"hello".to_vec()));
    let Stored::Published(progress) = &stored[1] else { panic!("{stored:?}") };
    assert_eq!((progress.rcv_nxt, progress.snd_una), (Seq(NXT + 5), Seq(UNA + 100)));
}

#[test]
fn an_arrival_that_is_not_committed_changes_nothing() {
    let mut bench = plain();
    let before = bench.connection.saved();
    drop(bench.connection.receive(&segment(b"hello", |_| {}), 0));
    assert_eq!(bench.connection.saved(), before);
    assert_eq!(bench.receive(segment(b"hello", |_| {})), accepted(5, 0));
}

#[test]
fn old_bytes_at_the_beginning_are_left_out() {
    let mut bench = plain();
    assert_eq!(bench.receive(segment(b"abcdef", |it| it.seq = Seq(NXT - 4))), accepted(2, 0));
    assert_eq!(bench.log.0[0], Stored::Put(Seq(NXT), b"ef".to_vec()));
}

#[test]
fn a_segment_may_fill_the_window_and_not_more() {
    let mut bench = plain();
    let bytes = vec![0; RING as usize + 1];
    assert_eq!(bench.receive(segment(&bytes, |_| {})), Outcome::Returned(Back::BeyondWindow));
    let with_fin = segment(&bytes[1..], |it| it.flags = Flags::ACK.with(Flags::FIN));
    assert_eq!(bench.receive(with_fin), Outcome::Returned(Back::Fin), "a FIN needs no room");
    assert_eq!(bench.receive(segment(&bytes[1..], |_| {})), accepted(RING, 0));
    let fin = segment(b"", |it| (it.seq, it.flags) = (Seq(NXT + RING - 1), Flags::ACK.with(Flags::FIN)));
    assert_eq!(bench.receive(fin), Outcome::Discarded(Discarded::OldData));
    let probe = segment(b"x", |it| it.seq = Seq(NXT + RING));
    assert_eq!(bench.receive(probe), Outcome::Discarded(Discarded::OutOfWindow), "the window is closed");
}

/// Each of these is discarded, and answered as often as is said.
#[test]
fn what_lies_outside_of_the_window_changes_nothing() {
    type Change = fn(&mut Segment);
    let cases: [(&[u8], Change, Discarded, usize); 11] = [
        (b"", |it| it.mac = [7; 6], Discarded::OtherHost, 0),
        (b"", |it| it.flags = Flags::PSH, Discarded::NoAck, 0),
        (b"abc", |it| it.seq = Seq(NXT - 3), Discarded::OldData, 1),
        (b"", |it| it.seq = Seq(NXT - 1), Discarded::OutOfWindow, 1),
        (b"", |it| it.seq = Seq(NXT + RING + 1), Discarded::OutOfWindow, 1),
        (b"abc", |it| it.seq = Seq(NXT + RING), Discarded::OutOfWindow, 1),
        (b"", |it| (it.seq, it.flags) = (Seq(NXT - 1), Flags::RST), Discarded::Reset, 0),
        (b"", |it| (it.seq, it.flags) = (Seq(NXT - 1), Flags::SYN), Discarded::Syn, 1),
        (b"x", |it| it.ack = Seq(UNA + 1), Discarded::AckOfUnsent, 1),
        (b"x", |it| it.ack = Seq(UNA.wrapping_sub(RING + 1)), Discarded::AckTooOld, 1),
        (b"", |it| it.ack = Seq(UNA - 1), Discarded::OldAck, 0),
    ];
    for (payload, change, why, answers) in cases {
        let mut bench = plain();
        assert_eq!(bench.receive(segment(payload, change)), Outcome::Discarded(why));
        assert_eq!(bench.acks(), vec![NXT; answers], "{why:?}");
    }
}

/// Irregular segments are returned only if they lie in the window: each is discarded outside of it.
#[test]
fn what_is_irregular_in_the_window_is_returned() {
    type Change = fn(&mut Segment);
    let sack = Options { has_sack: true, ..Options::default() };
    let cases: [(Change, Back); 11] = [
        (|it| it.flags = Flags::ACK.with(Flags::FIN), Back::Fin),
        (|it| it.flags = Flags::RST, Back::Reset),
        (|it| it.flags = Flags::RST.with(Flags::ACK), Back::Reset),
        (|it| it.flags = Flags::SYN, Back::Syn),
        (|it| it.flags = Flags::ACK.with(Flags::URG), Back::Urgent),
        (|it| it.flags = Flags(0x10 | 0x800), Back::Reserved),
        (|it| it.flags = Flags(0x10 | 0x40), Back::Congestion),
        (|it| it.is_marked = true, Back::Congestion),
        (|it| it.window = 0, Back::ZeroWindow),
        (|it| it.seq = Seq(NXT + 1), Back::Gap),
        (|it| it.options.is_irregular = true, Back::Option),
    ];
    for (change, why) in cases {
        let mut bench = plain();
        assert_eq!(bench.receive(segment(b"abc", change)), Outcome::Returned(why));
        let outside = |it: &mut Segment| {
            change(it);
            it.seq = Seq(NXT - 1000);
        };
        let outcome = bench.receive(segment(b"abc", outside));
        assert!(matches!(outcome, Outcome::Discarded(_)), "{why}: {outcome:?}");
    }
    assert_eq!(plain().receive(segment(b"", |it| it.options = sack)), Outcome::Returned(Back::Sack));
    assert_eq!(plain().receive(segment(b"", |it| it.options = stamped(1))), Outcome::Returned(Back::Option));
}

#[test]
fn an_old_acknowledgement_brings_its_data() {
    let mut bench = sending();
    assert_eq!(bench.receive(segment(b"", |it| it.ack = Seq(UNA + 200))), accepted(0, 200));
    let old = segment(b"data", |it| (it.ack, it.window) = (Seq(UNA + 100), 0));
    assert_eq!(bench.receive(old), accepted(4, 0));
    assert_eq!(bench.progress().snd_una, Seq(UNA + 200));
}

#[test]
fn the_third_duplicate_acknowledgement_returns_the_connection() {
    let mut bench = sending();
    let larger = RING as u16 + 8;
    let after = |it: &mut Segment| (it.seq, it.window) = (Seq(NXT + 1), larger);
    assert_eq!(bench.receive(segment(b"", |_| {})), accepted(0, 0));
    assert_eq!(bench.receive(segment(b"", |it| it.window = larger)), accepted(0, 0), "a window update is none");
    assert_eq!(bench.receive(segment(b"x", |it| it.window = larger)), accepted(1, 0), "a segment with data is none");
    assert_eq!(bench.receive(segment(b"", after)), accepted(0, 0));
    assert_eq!(bench.receive(segment(b"", after)), Outcome::Returned(Back::DuplicateAcks));
}

#[test]
fn an_acknowledgement_of_more_ends_the_count_of_duplicates() {
    let mut bench = sending();
    for acked in 0..3 {
        let again = |it: &mut Segment| it.ack = Seq(UNA + acked);
        assert_eq!(bench.receive(segment(b"", again)), accepted(0, u32::from(acked > 0)));
        assert_eq!(bench.receive(segment(b"", again)), accepted(0, 0));
    }
}

#[test]
fn without_data_in_flight_no_acknowledgement_is_a_duplicate() {
    let mut bench = plain();
    for _ in 0..10 {
        assert_eq!(bench.receive(segment(b"", |_| {})), accepted(0, 0));
    }
}

#[test]
fn only_a_newer_segment_or_a_larger_window_moves_the_edge() {
    let mut bench = sending();
    let edge = |bench: &Bench| bench.progress().snd_edge.0 - UNA;
    assert_eq!(bench.receive(segment(b"x", |_| {})), accepted(1, 0));
    let small = |it: &mut Segment| (it.seq, it.window) = (Seq(NXT + 1), 500);
    assert_eq!(bench.receive(segment(b"y", small)), accepted(1, 0));
    assert_eq!(edge(&bench), 500, "a newer segment");
    assert_eq!(bench.progress().max_window, RING);
    let reordered = |it: &mut Segment| (it.seq, it.window) = (Seq(NXT + 1), 7000);
    assert_eq!(bench.receive(segment(b"yz", reordered)), accepted(1, 0));
    assert_eq!(edge(&bench), 7000, "a larger window");
    let older = |it: &mut Segment| (it.seq, it.window) = (Seq(NXT), 8000);
    assert_eq!(bench.receive(segment(b"xyz!", older)), accepted(1, 0));
    assert_eq!(edge(&bench), 7000, "an older segment");
}

fn with_timestamps(ts_recent: Option<u32>) -> Bench {
    bench(|saved| {
        saved.agreed.options = Agreed::TIMESTAMPS;
        (saved.progress.ts_recent, saved.progress.ts_known) = (ts_recent.unwrap_or(0), ts_recent.is_some().into());
    })
}

#[test]
fn timestamps_are_learnt_and_then_checked() {
    let mut bench = with_timestamps(None);
    assert_eq!(bench.receive(segment(b"a", |_| {})), Outcome::Returned(Back::NoTimestamp));
    let old = u32::MAX - 5;
    assert_eq!(bench.receive(segment(b"a", |it| it.options = stamped(old))), accepted(1, 0));
    assert_eq!((bench.progress().ts_recent, bench.progress().ts_known), (old, 1));
    let with = |bytes, value| segment(bytes, |it| (it.seq, it.options) = (Seq(NXT + 1), stamped(value)));
    assert_eq!(bench.receive(with(b"b", old - 2)), Outcome::Discarded(Discarded::OldTimestamp));
    assert_eq!(bench.receive(with(b"", old - 2)), Outcome::Returned(Back::OldTimestamp));
    assert_eq!(bench.receive(with(b"", old - 1)), accepted(0, 0), "as Linux permits");
    assert_eq!(bench.receive(with(b"b", 3)), accepted(1, 0));
    // Not the first segment since the last acknowledgement (RFC 7323, section 4.3).
    assert_eq!(bench.progress().ts_recent, old);
}

/// The kernel, which does not learn the newest timestamp, would accept each of these.
#[test]
fn old_data_are_not_returned_whatever_else_they_are() {
    let changes: [fn(&mut Segment); 4] = [
        |_| {},
        |it| it.seq = Seq(NXT + 10),
        |it| it.flags = Flags::ACK.with(Flags::FIN),
        |it| it.flags = Flags::ACK.with(Flags::URG),
    ];
    for change in changes {
        let mut bench = with_timestamps(Some(1000));
        let old = |it: &mut Segment| {
            it.options = stamped(900);
            change(it);
        };
        assert_eq!(bench.receive(segment(b"old", old)), Outcome::Discarded(Discarded::OldTimestamp));
        assert_eq!(bench.acks().len(), 1);
    }
    let reset = |it: &mut Segment| (it.options, it.flags) = (stamped(900), Flags::RST);
    assert_eq!(with_timestamps(Some(1000)).receive(segment(b"", reset)), Outcome::Returned(Back::Reset));
}

#[test]
fn after_24_days_no_timestamp_counts_as_old() {
    let mut bench = with_timestamps(Some(1000));
    bench.now = 25 * 24 * 3600 * 1_000_000;
    let data = segment(b"new", |it| it.options = stamped(900));
    assert_eq!(bench.receive(data), Outcome::Returned(Back::OldTimestamp));
}

#[test]
fn a_report_of_duplicate_bytes_is_no_report_of_a_loss() {
    for (from, to, is_duplicate) in
        [(0, 100, true), (50, 90, true), (0, 101, false), (100, 200, false), (90, 50, false)]
    {
        let only_block = Some((Seq(UNA + from), Seq(UNA + to)));
        let options = Options { has_sack: true, only_block, ..Options::default() };
        let mut bench = sending();
        let outcome = bench.receive(segment(b"", |it| (it.ack, it.options) = (Seq(UNA + 100), options)));
        let due = if is_duplicate { accepted(0, 100) } else { Outcome::Returned(Back::Sack) };
        assert_eq!(outcome, due, "{from}..{to}");
    }
}

#[test]
fn an_acknowledgement_echoes_the_first_segment_that_it_answers() {
    let mut bench = with_timestamps(Some(50));
    assert_eq!(bench.receive(segment(b"a", |it| it.options = stamped(60))), accepted(1, 0));
    let second = segment(b"b", |it| (it.seq, it.options) = (Seq(NXT + 1), stamped(70)));
    assert_eq!(bench.receive(second), accepted(1, 0));
    bench.now = 40_000;
    let (fields, _) = bench.send()[0];
    assert_eq!(fields.timestamps.expect("timestamps").echo, 60);
}

#[test]
fn answers_to_segments_without_data_are_limited() {
    let mut bench = plain();
    for (now, answers) in [(0, 1), (499_999, 0), (500_000, 1)] {
        bench.now = now;
        assert_eq!(bench.receive(segment(b"", |it| it.seq = Seq(NXT - 1))), Outcome::Discarded(Discarded::OutOfWindow));
        assert_eq!(bench.acks().len(), answers, "at {now}");
        assert_eq!(bench.receive(segment(b"a", |it| it.seq = Seq(NXT - 1))), Outcome::Discarded(Discarded::OldData));
        assert_eq!(bench.acks().len(), 1, "data is always answered");
        let syn = segment(b"a", |it| (it.seq, it.flags) = (Seq(NXT - 1000), Flags::SYN));
        assert_eq!(bench.receive(syn), Outcome::Discarded(Discarded::Syn));
        assert_eq!(bench.acks(), [], "a SYN is not, whatever it brings");
    }
}

#[test]
fn data_that_arrives_twice_before_its_acknowledgement_is_acknowledged_twice() {
    let mut bench = plain();
    assert_eq!(bench.receive(segment(b"a", |_| {})), accepted(1, 0));
    assert_eq!(bench.receive(segment(b"a", |_| {})), Outcome::Discarded(Discarded::OldData));
    assert_eq!(bench.acks(), [NXT + 1, NXT + 1]);
}
