//! What leaves, and when.

mod common;

use common::*;
use sidestep_tcp::{Agreed, Back, Flags, Options, Progress, Saved, Seq};

#[test]
fn a_segment_is_published_before_it_can_be_written() {
    let mut bench = bench(|_| {});
    bench.write(50);
    let departure = bench.connection.next(bench.positions, 0).expect("a segment").expect("a segment");
    assert_eq!(bench.log.0, []);
    let outgoing = departure.commit(&mut bench.log);
    assert_eq!((outgoing.payload().at, outgoing.payload().len), (Seq(UNA), 50));
    let [Stored::Published(progress)] = bench.log.0.as_slice() else { panic!("{:?}", bench.log.0) };
    assert_eq!(progress.snd_nxt, Seq(UNA + 50));
}

#[test]
fn a_departure_that_is_not_committed_changes_nothing() {
    let mut bench = bench(|_| {});
    bench.write(50);
    let before = bench.connection.saved();
    drop(bench.connection.next(bench.positions, 0));
    assert_eq!(bench.connection.saved(), before);
    assert_eq!(bench.lengths(), [50]);
}

#[test]
fn segments_are_full_and_the_last_one_is_pushed() {
    let mut bench = bench(|_| {});
    bench.write(250);
    let pushed: Vec<_> = bench.send().iter().map(|(fields, len)| (*len, fields.flags.has(Flags::PSH))).collect();
    assert_eq!(pushed, [(100, false), (100, false), (50, true)]);
}

#[test]
fn the_congestion_window_counts_segments() {
    let mut bench = bench(|saved| saved.progress.cwnd = 2);
    for sent in [vec![1], vec![1], vec![]] {
        bench.write(1);
        assert_eq!(bench.lengths(), sent);
    }
    bench.write(500);
    assert_eq!(bench.lengths(), []);
    assert_eq!(bench.receive(segment(b"", |it| it.ack = Seq(UNA + 1))), accepted(0, 1));
    assert_eq!(bench.lengths(), [100]);
}

#[test]
fn nothing_leaves_beyond_the_window() {
    let window = |width: u32| {
        move |saved: &mut Saved| {
            saved.progress.snd_edge = Seq(UNA + width);
            saved.progress.max_window = width;
        }
    };
    let mut bench = bench(window(250));
    bench.write(1000);
    assert_eq!(bench.lengths(), [100, 100], "50 bytes are neither a segment nor half of the largest window");
    let mut small = common::bench(window(70));
    small.write(1000);
    assert_eq!(small.lengths(), [70], "half of the largest window");
}

#[test]
fn what_the_peer_misses_may_leave_once_more() {
    let mut bench = bench(|_| {});
    assert!(bench.connection.missing(0).is_none(), "all is acknowledged");
    bench.write(250);
    assert_eq!(bench.lengths(), [100, 100, 50]);
    for (acked, len) in [(0, 100), (100, 100), (220, 30)] {
        if acked > 0 {
            let _ = bench.receive(segment(b"", |it| it.ack = Seq(UNA + acked)));
        }
        let before = bench.connection.saved();
        let again = bench.connection.missing(7).expect("a segment");
        assert_eq!((again.payload().at, again.payload().len), (Seq(UNA + acked), len));
        let fields = again.fields();
        assert_eq!((fields.seq, fields.ack, u32::from(fields.window)), (Seq(UNA + acked), Seq(NXT), RING));
        assert_eq!(bench.connection.saved(), before);
    }
}

#[test]
fn an_acknowledgement_that_waits_for_data_is_owed() {
    let mut bench = bench(|_| {});
    assert!(bench.connection.owed(0).is_none());
    assert!(matches!(bench.receive(segment(b"abc", |_| {})), Outcome::Accepted { .. }));
    let before = bench.connection.saved();
    let owed = bench.connection.owed(0).expect("an acknowledgement");
    assert_eq!((owed.payload().len, owed.fields().seq, owed.fields().ack), (0, Seq(UNA), Seq(NXT + 3)));
    assert_eq!(bench.connection.saved(), before);
}

#[test]
fn what_a_segment_acknowledges_that_tells_a_loss_is_not_missing() {
    let sack = Options { has_sack: true, ..Options::default() };
    for (acked, missing) in [(0, Some((0, 100))), (100, Some((100, 100))), (230, Some((230, 20))), (250, None)] {
        let mut bench = bench(|_| {});
        bench.write(250);
        assert_eq!(bench.lengths(), [100, 100, 50]);
        let told = segment(b"", |it| (it.ack, it.options) = (Seq(UNA + acked), sack));
        assert_eq!(bench.receive(told), Outcome::Returned(Back::Sack));
        let again = bench.connection.missing(0).map(|it| (it.payload().at.0 - UNA, it.payload().len));
        assert_eq!(again, missing);
    }
}

#[test]
fn a_window_that_stays_too_small_returns_the_connection() {
    for width in [0, 99] {
        let mut bench = bench(move |saved| saved.progress.snd_edge = Seq(UNA + width));
        assert_eq!(bench.connection.deadline(), None, "nothing to send");
        bench.now = 5000;
        bench.write(100);
        assert_eq!(bench.lengths(), []);
        assert_eq!(bench.connection.deadline(), Some(1_005_000), "{width}");
        bench.now = 1_004_999;
        assert_eq!(bench.lengths(), []);
        bench.now = 1_005_000;
        assert_eq!(bench.try_send(), Err(Back::SmallWindow), "{width}");
        // An update that arrives late, but before the connection is given back.
        assert_eq!(bench.receive(segment(b"", |_| {})), accepted(0, 0));
        assert_eq!(bench.lengths(), [100]);
        assert_eq!(bench.connection.deadline(), Some(2_005_000), "the timer starts anew");
    }
    let mut bench = bench(|saved| saved.progress.snd_edge = Seq(UNA + 99));
    bench.write(99);
    assert_eq!(bench.lengths(), [99], "everything fits");
}

/// The peer may take its edge back (RFC 9293, section 3.8.6).
#[test]
fn a_window_that_shrinks_below_what_is_in_flight_stops_the_sender() {
    let mut bench = bench(|_| {});
    bench.write(300);
    assert_eq!(bench.lengths(), [100, 100, 100]);
    let shrunk = segment(b"x", |it| (it.ack, it.window) = (Seq(UNA + 100), 50));
    assert_eq!(bench.receive(shrunk), accepted(1, 100));
    assert_eq!(
        bench.receive(segment(b"y", |it| (it.seq, it.ack, it.window) = (Seq(NXT + 1), Seq(UNA + 100), 50))),
        accepted(1, 0)
    );
    assert_eq!(bench.progress().snd_edge, Seq(UNA + 150));
    bench.write(300);
    assert_eq!(bench.lengths(), []);
    assert_eq!(
        bench.receive(segment(b"", |it| (it.seq, it.ack, it.window) = (Seq(NXT + 2), Seq(UNA + 300), 50))),
        accepted(0, 200)
    );
    assert_eq!(bench.lengths(), []);
}

#[test]
fn nagle_holds_back_the_second_small_segment() {
    let nagle = |options: u16| {
        let mut bench = bench(|saved| saved.agreed.options = options);
        bench.write(10);
        assert_eq!(bench.lengths(), [10]);
        bench.write(10);
        bench
    };
    assert_eq!(nagle(0).lengths(), [10]);
    let mut bench = nagle(Agreed::NAGLE);
    assert_eq!(bench.lengths(), []);
    bench.write(190);
    assert_eq!(bench.lengths(), [100, 100], "full segments are not held back");
    bench.write(10);
    assert_eq!(bench.lengths(), []);
    assert_eq!(bench.receive(segment(b"", |it| it.ack = Seq(UNA + 10))), accepted(0, 10));
    assert_eq!(bench.lengths(), [10], "the small segment is acknowledged");
}

#[test]
fn a_delayed_acknowledgement_leaves_after_40_milliseconds() {
    let mut bench = bench(|_| {});
    bench.now = 1000;
    assert_eq!(bench.connection.deadline(), None);
    assert_eq!(bench.receive(segment(b"abc", |_| {})), accepted(3, 0));
    assert_eq!(bench.acks(), []);
    assert_eq!(bench.connection.deadline(), Some(41_000));
    bench.now = 40_999;
    assert_eq!(bench.acks(), []);
    bench.now = 41_000;
    assert_eq!(bench.acks(), [NXT + 3]);
    assert_eq!(bench.connection.deadline(), None);
}

#[test]
fn data_takes_the_acknowledgement_along() {
    let mut bench = bench(|_| {});
    assert_eq!(bench.receive(segment(b"abc", |_| {})), accepted(3, 0));
    bench.write(5);
    let sent = bench.send();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0.ack, sent[0].1), (Seq(NXT + 3), 5));
    bench.now = 100_000;
    assert_eq!(bench.acks(), [], "none is owed any more");
}

#[test]
fn the_second_full_segment_is_acknowledged_at_once() {
    let mut bench = bench(|saved| saved.agreed.mss = 600);
    assert_eq!(bench.receive(segment(&[0; 600], |_| {})), accepted(600, 0));
    assert_eq!(bench.acks(), []);
    assert_eq!(bench.receive(segment(&[0; 600], |it| it.seq = Seq(NXT + 600))), accepted(600, 0));
    assert_eq!(bench.acks(), [NXT + 1200]);
    assert_eq!(bench.progress().rcv_acked, Seq(NXT + 1200));
    assert_eq!(bench.receive(segment(&[0; 600], |it| it.seq = Seq(NXT + 1200))), accepted(600, 0));
    assert_eq!(bench.acks(), [], "the count starts anew");
}

/// A peer whose congestion window is no larger than the frame would wait for the delayed acknowledgement.
#[test]
fn segments_that_were_joined_on_their_way_are_acknowledged_at_once() {
    let mut bench = bench(|saved| saved.agreed.mss = 600);
    assert_eq!(bench.receive(segment(&[0; 2400], |_| {})), accepted(2400, 0));
    assert_eq!(bench.acks(), [NXT + 2400]);
    assert_eq!(bench.receive(segment(&[0; 600], |it| it.seq = Seq(NXT + 2400))), accepted(600, 0));
    assert_eq!(bench.acks(), []);
    assert_eq!(bench.receive(segment(&[0; 600], |it| it.seq = Seq(NXT + 3000))), accepted(600, 0));
    assert_eq!(bench.acks(), [NXT + 3600], "later segments are as long as before");
}

#[test]
fn a_program_that_reads_opens_the_window_at_once() {
    let mut bench = bench(|_| {});
    assert!(!bench.connection.is_window_short());
    let bytes = vec![0; RING as usize - 100];
    assert_eq!(bench.receive(segment(&bytes, |_| {})), accepted(RING - 100, 0));
    bench.now = 40_000;
    let window = |bench: &mut Bench| bench.send().first().map(|(fields, _)| fields.window);
    assert_eq!(window(&mut bench), Some(100));
    assert!(bench.connection.is_window_short(), "the caller must learn when the program has read");
    bench.positions.read = Seq(NXT + 199);
    assert_eq!(window(&mut bench), None, "less than two segments");
    bench.positions.read = Seq(NXT + 200);
    assert_eq!(window(&mut bench), Some(300));
    assert_eq!(window(&mut bench), None);
    assert!(bench.connection.is_window_short());
    bench.positions.read = Seq(NXT + RING / 2 + 1);
    assert_eq!(window(&mut bench), Some(4101));
    assert!(!bench.connection.is_window_short());
}

#[test]
fn unacknowledged_data_returns_the_connection_in_time() {
    let mut bench = bench(|saved| (saved.progress.srtt, saved.progress.rttvar) = (10_000, 5_000));
    bench.write(100);
    assert_eq!(bench.lengths(), [100]);
    assert_eq!(bench.connection.deadline(), Some(210_000));
    bench.now = 100_000;
    bench.write(100);
    assert_eq!(bench.lengths(), [100]);
    assert_eq!(bench.connection.deadline(), Some(210_000), "the timer runs for the first one");
    bench.now = 150_000;
    assert_eq!(bench.receive(segment(b"", |it| it.ack = Seq(UNA + 100))), accepted(0, 100));
    assert_eq!(bench.progress().srtt, 10_000 + (150_000 - 10_000) / 8, "the round trip is measured");
    let restarted = bench.connection.deadline().expect("a deadline");
    assert!(restarted >= 150_000 + 200_000, "an acknowledgement restarts the timer: {restarted}");
    bench.now = restarted - 1;
    assert_eq!(bench.lengths(), []);
    bench.now = restarted;
    assert_eq!(bench.try_send(), Err(Back::Timeout));
}

#[test]
fn everything_acknowledged_stops_the_timer() {
    let mut bench = bench(|_| {});
    bench.write(100);
    assert_eq!(bench.lengths(), [100]);
    assert_eq!(bench.receive(segment(b"", |it| it.ack = Seq(UNA + 100))), accepted(0, 100));
    assert_eq!(bench.connection.deadline(), None);
    bench.now = u64::MAX;
    assert_eq!(bench.try_send(), Ok(vec![]));
}

#[test]
fn a_program_is_not_believed_to_be_where_it_cannot_be() {
    let cases: [(u32, u32); 6] = [
        (UNA - 1, NXT),
        (UNA + RING + 1, NXT),
        (UNA.wrapping_sub(1 << 31), NXT),
        (UNA, NXT + 1),
        (UNA, NXT - 1),
        (UNA, NXT.wrapping_add(1 << 31)),
    ];
    for (written, read) in cases {
        let mut bench = bench(|_| {});
        (bench.positions.written, bench.positions.read) = (Seq(written), Seq(read));
        assert_eq!(bench.try_send(), Err(Back::Ring), "{written} {read}");
    }
}

#[test]
fn a_worker_that_takes_over_waits_for_what_is_in_flight() {
    let mut bench = bench(|saved| saved.progress.snd_nxt = Seq(UNA + 50));
    assert!(bench.connection.deadline().is_some(), "the timer runs");
    bench.write(100);
    assert_eq!(bench.lengths(), []);
    assert_eq!(bench.receive(segment(b"", |it| it.ack = Seq(UNA + 50))), accepted(0, 50));
    assert_eq!(bench.lengths(), [100]);
    assert_eq!(bench.progress().cwnd, 10, "what it does not know does not open the window");
}

/// A change that makes a record impossible.
type Damage = fn(&mut Saved);

#[test]
fn an_impossible_record_is_refused() {
    let damages: [Damage; 14] = [
        |it| it.agreed.send_ring = 0,
        |it| it.agreed.send_ring = (1 << 30) + 1,
        |it| it.agreed.receive_ring = u32::MAX,
        |it| it.agreed.send_scale = 15,
        |it| it.agreed.receive_scale = 32,
        |it| it.agreed.receive_scale = 12,
        |it| it.agreed.mss = 0,
        |it| it.agreed.mss = 70_000,
        |it| it.progress.snd_nxt = Seq(UNA - 1),
        |it| it.progress.rcv_edge = Seq(NXT - 1),
        |it| it.progress.rcv_acked = Seq(NXT + 1),
        |it| it.progress.snd_edge = Seq(UNA + (1 << 30) + 1),
        |it| it.progress.max_window = u32::MAX,
        |it| it.progress.cwnd = 0,
    ];
    assert_eq!(saved().check(), Ok(()));
    for (n, damage) in damages.iter().enumerate() {
        let mut saved = saved();
        damage(&mut saved);
        assert!(saved.check().is_err(), "{n}: {saved:?}");
    }
    let words = Progress::from_words([u64::MAX; Progress::WORDS]);
    assert!(Saved { progress: words, ..saved() }.check().is_err());
}
