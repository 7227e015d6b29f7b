//! The handshake that the kernel would make: the fast path has none.

use crate::tap::Tap;
use crate::tcp_end::link;
use sidestep_tcp::{
    Agreed, Checksums, Fields, Flags, Headers, Progress, Saved, Segment, Seq, Tuple, complete_checksum,
};

/// What this end offers.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub timestamps: bool,
    pub sack: bool,
    pub scale: Option<u8>,
}

/// Bytes of each ring.
pub const RING: u32 = 1 << 16;
/// The window that the SYN and the first segments promise.
const WINDOW: u16 = 32_000;
const MTU: u32 = 1500;
/// The clock starts here.
const SYN_TIMESTAMP: u32 = 1;

/// Opens a connection to a listener of the kernel, up to the last acknowledgement: the connection's first segment is that.
pub fn open(tap: &mut Tap, tuple: Tuple, offer: Offer) -> Saved {
    let headers = Headers::new(tuple, &link(0)).expect("one family");
    let first = Seq(u32::MAX - 1000);
    tap.send(&syn(&headers, first, offer));
    let answer = wait_for(tap, tuple);
    let segment = Segment::parse(&answer, Checksums::Complete).expect("a segment");
    assert!(segment.flags.has(Flags::SYN) && segment.ack == first.plus(1), "{segment:?}");
    let theirs = options_of(&answer, segment.payload.len());
    assert_eq!(theirs.scale.is_some(), offer.scale.is_some());
    assert_eq!(segment.options.timestamps.is_some(), offer.timestamps);
    let options = u16::from(offer.timestamps) * Agreed::TIMESTAMPS + u16::from(offer.sack) * Agreed::SACK;
    let agreed = Agreed {
        send_ring: RING,
        receive_ring: RING,
        mss: theirs.mss - if offer.timestamps { 12 } else { 0 },
        timestamp_offset: SYN_TIMESTAMP,
        send_scale: theirs.scale.unwrap_or(0),
        receive_scale: offer.scale.unwrap_or(0),
        options,
    };
    let rcv_nxt = segment.seq.plus(1);
    let progress = Progress {
        snd_una: segment.ack,
        snd_nxt: segment.ack,
        snd_edge: segment.ack.plus(segment.window.into()),
        snd_wl1: segment.seq,
        max_window: segment.window.into(),
        rcv_nxt,
        rcv_edge: first_edge(rcv_nxt),
        rcv_acked: rcv_nxt,
        cwnd: 10,
        ssthresh: i32::MAX as u32,
        ts_recent: segment.options.timestamps.map_or(0, |timestamps| timestamps.value),
        ts_known: segment.options.timestamps.is_some().into(),
        ..Progress::default()
    };
    Saved { agreed, progress }
}

/// The window of a SYN is not scaled.
fn first_edge(rcv_nxt: Seq) -> Seq {
    rcv_nxt.plus(WINDOW.into())
}

/// A SYN with its options, which the fast path does not write: they are written as payload, and counted as header afterwards.
fn syn(headers: &Headers, seq: Seq, offer: Offer) -> Vec<u8> {
    let mss = (MTU - 40) as u16;
    let mut options = vec![2, 4, (mss >> 8) as u8, mss as u8];
    if offer.sack {
        options.extend([1, 1, 4, 2]);
    }
    if offer.timestamps {
        options.extend([1, 1, 8, 10, 0, 0, 0, SYN_TIMESTAMP as u8, 0, 0, 0, 0]);
    }
    if let Some(scale) = offer.scale {
        options.extend([1, 3, 3, scale]);
    }
    let fields = Fields { seq, ack: Seq(0), flags: Flags::SYN, window: WINDOW, timestamps: None };
    let mut frame = vec![0; 200];
    let len = headers.write(&mut frame, &fields, [&options, &[]]).expect("room");
    frame.truncate(len);
    let at = len - 20 - options.len();
    frame[at + 12] = ((20 + options.len()) as u8 / 4) << 4;
    set_partial_checksum(&mut frame, at);
    complete_checksum(&mut frame).expect("a frame with a partial checksum");
    frame
}

/// What Linux leaves to a device: the sum of the pseudo-header. `at`: where TCP begins.
fn set_partial_checksum(frame: &mut [u8], at: usize) {
    let addresses = if at == 34 { 26..34 } else { 22..54 };
    let words = frame[addresses].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>() + 6 + (frame.len() - at) as u32;
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    frame[at + 16..at + 18].copy_from_slice(&(folded as u16).to_be_bytes());
}

/// The next frame of this connection.
pub fn wait_for(tap: &mut Tap, tuple: Tuple) -> Vec<u8> {
    loop {
        tap.wait(10_000_000);
        let frame = tap.receive().expect("an answer within 10 s");
        if Segment::parse(&frame, Checksums::Complete).is_ok_and(|segment| segment.tuple == tuple) {
            return frame;
        }
    }
}

struct Options {
    mss: u32,
    scale: Option<u8>,
}

/// The options of a SYN without data, which stand at the frame's end.
fn options_of(frame: &[u8], payload: usize) -> Options {
    assert_eq!(payload, 0);
    let tcp = if frame[12] == 8 { 34 } else { 54 };
    let mut rest = &frame[tcp + 20..tcp + usize::from(frame[tcp + 12] >> 4) * 4];
    let mut found = Options { mss: 536, scale: None };
    loop {
        match rest {
            [] | [0, ..] => return found,
            [1, after @ ..] => rest = after,
            [kind, len, ..] => {
                match kind {
                    2 => found.mss = u32::from(rest[2]) << 8 | u32::from(rest[3]),
                    3 => found.scale = Some(rest[2]),
                    _ => {}
                }
                rest = &rest[usize::from(*len)..];
            }
            [_] => panic!("a cut option"),
        }
    }
}
