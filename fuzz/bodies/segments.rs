//! Any segments and frames against one end: no panic, no wrong byte, and nothing changes but by what a peer may send. What the
//! end does is compared with rules that are written down here once more, in 64-bit numbers that do not wrap.

use crate::input::Input;
use crate::tcp_end::{End, Wire, link};
use sidestep_tcp::{
    Agreed, Back, Checksums, Discarded, Fields, Flags, Headers, Progress, Saved, Segment, Seq, Timestamps, Tuple,
    Verdict,
};
use std::collections::HashMap;

/// How often each outcome was seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub accepted: u64,
    pub received: u64,
    pub acknowledged: u64,
    pub unreadable: u64,
    pub discarded: HashMap<Discarded, u64>,
    pub returned: HashMap<Back, u64>,
}

/// Reasons that no segment alone leads to.
#[allow(dead_code)] // for the test
pub const NOT_BY_A_SEGMENT: &[Back] = &[Back::SmallWindow, Back::Timeout, Back::Ring];

#[allow(dead_code)] // for the fuzzer
pub fn run(data: &[u8]) {
    run_counting(data, &mut Seen::default());
}

struct Attack {
    end: End,
    headers: Headers,
    now: u64,
    frame: Vec<u8>,
}

pub fn run_counting(data: &[u8], seen: &mut Seen) {
    let mut input = Input::new(data);
    let mut attack = Attack::new(&mut input);
    while !input.is_empty() {
        match input.below(8) {
            0 => attack.end.write(u32::from(input.byte())),
            1 => attack.send(&mut input),
            2 => attack.any_bytes(&mut input),
            _ => attack.segment(&mut input),
        }
        attack.arrive(input.byte(), seen);
    }
}

impl Attack {
    fn new(input: &mut Input) -> Attack {
        let options = u16::from(input.byte());
        let (snd, rcv) = (Seq(input.word() as u32), Seq(input.word() as u32));
        let agreed = Agreed {
            send_ring: 4096,
            receive_ring: 4096,
            mss: 1000,
            timestamp_offset: 0,
            send_scale: 3,
            receive_scale: 2,
            options: options & Agreed::TIMESTAMPS,
        };
        let progress = Progress {
            snd_una: snd,
            snd_nxt: snd,
            snd_edge: snd.plus(8192),
            snd_wl1: rcv,
            max_window: 8192,
            rcv_nxt: rcv,
            rcv_edge: rcv.plus(8 * u32::from(input.byte())),
            rcv_acked: rcv,
            cwnd: 10,
            ssthresh: 100,
            ..Progress::default()
        };
        let [one, two] = ["192.0.2.1:1", "192.0.2.2:2"].map(|address| address.parse().expect("an address"));
        let tuple = Tuple::new(one, two);
        let end = End::new(0, Saved { agreed, progress }, tuple, 0);
        let headers = Headers::new(tuple.reversed(), &link(1)).expect("one family");
        Attack { end, headers, now: 0, frame: Vec::new() }
    }

    /// The end sends what it has. The peer need not answer in time, so the clock stands still.
    fn send(&mut self, input: &mut Input) {
        if input.below(8) == 0 {
            self.end.positions.read = self.end.store.progress().rcv_nxt;
        }
        // The peer's window may be closed, or so small that the end gives the connection back.
        let _ = self.end.send(self.now, &mut Wire::new());
    }

    fn any_bytes(&mut self, input: &mut Input) {
        let len = input.below(120);
        self.frame.clear();
        self.frame.extend((0..len).map(|_| input.byte()));
    }

    /// A segment with numbers near those that matter, and perhaps something that does not belong there.
    fn segment(&mut self, input: &mut Input) {
        let fields = self.fields(input);
        let payload: Vec<u8> = (0..input.below(256).saturating_sub(64)).map(|n| n as u8 ^ 0x5a).collect();
        let (first, second) = payload.split_at(payload.len() / 2);
        self.frame = vec![0; 400];
        let len = self.headers.write(&mut self.frame, &fields, [first, second]).expect("room");
        // Padding.
        self.frame.truncate(len + input.below(7));
        if input.below(2) == 0 {
            self.mutate(input);
        }
    }

    fn fields(&self, input: &mut Input) -> Fields {
        let progress = self.end.store.progress();
        let Progress { snd_una, snd_nxt, rcv_nxt, rcv_edge, rcv_acked, ts_recent, .. } = progress;
        let regular = input.byte();
        let value = if regular & 16 == 0 { ts_recent.wrapping_add(1) } else { near(input, &[Seq(ts_recent)]).0 };
        Fields {
            seq: if regular & 1 == 0 { rcv_nxt } else { near(input, &[rcv_nxt, rcv_edge, rcv_acked]) },
            ack: match regular >> 1 & 3 {
                0 => near(input, &[snd_una, snd_nxt, snd_una.minus(progress.max_window)]),
                1 => snd_nxt,
                _ => snd_una,
            },
            flags: if regular & 8 == 0 { Flags::ACK } else { Flags(1 << input.below(12)).with(Flags::ACK) },
            window: if regular & 32 == 0 { 1024 } else { u16::from(input.byte()) },
            timestamps: (regular & 64 == 0).then_some(Timestamps { value, echo: input.byte().into() }),
        }
    }

    /// Some bits of the headers change, the timestamps become a SACK block, or the frame is cut.
    fn mutate(&mut self, input: &mut Input) {
        if input.below(4) == 0 && self.frame.len() > 58 {
            self.frame[56] = 5;
        }
        for _ in 0..input.below(3) {
            let at = input.below(90) % self.frame.len();
            self.frame[at] ^= 1 << input.below(8);
        }
        if input.below(8) == 0 {
            self.frame.truncate(input.below(100));
        }
    }

    fn arrive(&mut self, choice: u8, seen: &mut Seen) {
        // Half of the frames are changed without a care for checksums, which then are not looked at.
        let checksums = [Checksums::Verified, Checksums::MayBePartial][usize::from(choice & 1)];
        self.now += u64::from(choice >> 4) * 50_000;
        let frame = std::mem::take(&mut self.frame);
        let Ok(segment) = Segment::parse(&frame, checksums) else {
            seen.unreadable += 1;
            return;
        };
        let before = self.end.store.progress();
        let verdict = self.end.connection.receive(&segment, self.now);
        match verdict {
            Verdict::Accepted(arrival) => {
                let arrived = arrival.commit(&mut self.end.store);
                seen.accepted += 1;
                seen.received += u64::from(arrived.received);
                seen.acknowledged += u64::from(arrived.acknowledged);
                self.check_accepted(&segment, &before);
            }
            Verdict::Discarded(why) => {
                *seen.discarded.entry(why).or_default() += 1;
                assert_eq!(self.end.connection.saved().progress, before, "{why:?}: nothing changes");
            }
            Verdict::Returned(why) => {
                *seen.returned.entry(why).or_default() += 1;
                assert_eq!(self.end.connection.saved().progress, before, "{why}: nothing changes");
                assert!(is_in_window(&segment, &before), "{why}: by a segment outside of the window");
            }
        }
    }

    /// The segment may change what it has changed, and its bytes are where they belong.
    fn check_accepted(&self, segment: &Segment, before: &Progress) {
        let after = self.end.store.progress();
        assert!(is_in_window(segment, before), "accepted outside of the window");
        let odd = !(Flags::ACK.0 | Flags::PSH.0);
        assert!(segment.flags.0 & odd == 0 && segment.flags.has(Flags::ACK), "{:?}", segment.flags);
        let from = relative(segment.seq, before.rcv_nxt);
        let to = from + segment.payload.len() as i64;
        assert!(from <= 0 && to <= relative(before.rcv_edge, before.rcv_nxt), "a gap, or beyond the window");
        assert_eq!(relative(after.rcv_nxt, before.rcv_nxt), to.max(0));
        for n in 0..to.max(0) {
            let byte = segment.payload[(n - from) as usize];
            assert_eq!(self.end.store.byte(before.rcv_nxt.plus(n as u32)), byte, "byte {n}");
        }
        let acked = relative(segment.ack, before.snd_una);
        assert!(acked <= i64::from(before.in_flight()), "an acknowledgement of what was never sent");
        assert_eq!(relative(after.snd_una, before.snd_una), acked.max(0));
        assert_eq!(
            (after.snd_nxt, after.rcv_edge, after.rcv_acked),
            (before.snd_nxt, before.rcv_edge, before.rcv_acked)
        );
        assert!(after.cwnd >= before.cwnd && after.cwnd <= before.cwnd + 2);
    }
}

/// A number near one of these, or any.
fn near(input: &mut Input, numbers: &[Seq]) -> Seq {
    let numbers: Vec<u64> = numbers.iter().map(|seq| u64::from(seq.0)).collect();
    Seq(input.hostile(&numbers) as u32)
}

fn relative(seq: Seq, to: Seq) -> i64 {
    i64::from(seq.0.wrapping_sub(to.0) as i32)
}

/// Whether a byte of the segment, or its number if it has none, lies in the window.
fn is_in_window(segment: &Segment, progress: &Progress) -> bool {
    let from = relative(segment.seq, progress.rcv_nxt);
    let edge = relative(progress.rcv_edge, progress.rcv_nxt);
    let flags = i64::from(segment.flags.has(Flags::SYN)) + i64::from(segment.flags.has(Flags::FIN));
    let len = segment.payload.len() as i64 + flags;
    if len == 0 { (0..=edge).contains(&from) } else { from < edge && from + len > 0 }
}
