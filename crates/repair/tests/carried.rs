//! Somebody carries the connection while it is taken: a test that sends segments itself. The kernels of both ends must find
//! everything right afterwards.

use crate::common::segment::{ACK, PUSH, Segment, Sender};
use crate::common::*;
use rustix::time::{ClockId, clock_gettime};
use sidestep_repair::{Queues, State, give_back, take};
use std::io::Read;

/// TSval by the clock of the taken connection.
fn timestamp(state: &State) -> Option<u32> {
    let now = clock_gettime(ClockId::Monotonic);
    let now = (now.tv_sec * 1000 + now.tv_nsec / 1_000_000) as u32;
    state.timestamps.map(|clock| now.wrapping_add(clock.offset))
}

fn segment<'a>(state: &State, seq: u32, payload: &'a [u8]) -> Segment<'a> {
    let scale = state.scales.map_or(0, |scales| scales.receive);
    Segment {
        from: state.local,
        to: state.remote,
        seq,
        ack: state.rcv_nxt,
        flags: if payload.is_empty() { ACK } else { ACK | PUSH },
        window: (state.window.rcv_wnd >> scale) as u16,
        timestamp: timestamp(state),
        payload,
    }
}

/// Sends one message and receives another, again and again, each time from the kernel and back into it.
fn carry(shape: Shape) {
    const MESSAGE: usize = 301;
    let wire = Wire::shaped(&shape);
    // The far kernel answers only one probe in half a second.
    wire.sysctl("tcp_invalid_ratelimit", false);
    let sender = Sender::new(&wire.near);
    let (near, far) = wire.connect(&shape);
    near.set_nonblocking(true).expect("O_NONBLOCK");
    let (mut to_near, mut to_far) = (Expected::new(1), Expected::new(2));
    let mut buffer = vec![0; 4096];
    for round in 0..20 {
        wire.close();
        let taken = take(&near).expect("take");
        let mut state = taken.state;
        assert_eq!((taken.unread.len(), taken.unacknowledged.len()), (0, 0));
        // The carrier sends a message. The far program reads it, but the acknowledgement is dropped.
        let sent = to_far.bytes(to_far.written, MESSAGE);
        sender.send(&segment(&state, state.snd_nxt, &sent));
        state.snd_nxt = state.snd_nxt.wrapping_add(MESSAGE as u32);
        to_far.written += MESSAGE as u64;
        (&far).read_exact(&mut buffer[..MESSAGE]).expect("the message");
        assert!(buffer[..MESSAGE] == sent, "wrong bytes in round {round}");
        to_far.read += MESSAGE as u64;
        // The far program answers. The carrier has received the answer, and acknowledges it.
        let received = to_near.bytes(to_near.written, MESSAGE);
        assert_eq!(to_near.write(&far, MESSAGE), MESSAGE);
        state.rcv_nxt = state.rcv_nxt.wrapping_add(MESSAGE as u32);
        sender.send(&segment(&state, state.snd_nxt, b""));
        state.window.rcv_wup = state.rcv_nxt;
        until("the acknowledgement arrives", || raw::unacknowledged(&far) == 0);
        // The program has read a part of the answer from the carrier.
        let part = round * 15;
        to_near.read += part as u64;
        let rest = &received[part..];
        let (first, second) = rest.split_at(rest.len() / 3);
        let queues = Queues { unread: [first, second], unacknowledged: [&sent[..7], &sent[7..]] };
        // The peer is silent now. Its answer to the probe must come through, or the kernel retransmits after a second.
        wire.open();
        give_back(&near, &state, &queues).expect("give back");
        no_error(&near);
        assert_eq!(raw::unread(&near), rest.len() as u64);
        while to_near.read < to_near.written {
            to_near.read(&near, &mut buffer);
        }
        until("the message is acknowledged", || raw::unacknowledged(&near) == 0);
    }
    finish(near, far, &mut to_far, &mut to_near, 100_000);
}

#[test]
fn with_all_options() {
    carry(USUAL);
}

#[test]
fn with_all_options_dialled() {
    carry(Shape { role: Role::Dials, ..USUAL });
}

#[test]
fn without_any_option() {
    carry(Shape { timestamps: false, scaling: false, sack: false, ..USUAL });
}

/// The kernel does not trim a segment that is acknowledged in part: its send queue begins before SND.UNA.
#[test]
fn a_segment_that_is_acknowledged_in_part() {
    let wire = Wire::shaped(&Shape { timestamps: false, ..USUAL });
    let sender = Sender::new(&wire.far);
    let (near, far) = wire.connect(&USUAL);
    near.set_nonblocking(true).expect("O_NONBLOCK");
    wire.close_far();
    let mut to_far = Expected::new(3);
    assert_eq!(to_far.write(&near, 1000), 1000);
    let first = take(&near).expect("take");
    sidestep_repair::undo(&near, &first.state.saved).expect("undo");
    assert_eq!(first.unacknowledged, to_far.bytes(0, 1000));
    sender.send(&Segment {
        from: first.state.remote,
        to: first.state.local,
        seq: first.state.rcv_nxt,
        ack: first.state.snd_una.wrapping_add(100),
        flags: ACK,
        window: 1000,
        timestamp: None,
        payload: b"",
    });
    until("a hundred bytes are acknowledged", || raw::unacknowledged(&near) == 900);
    let taken = take(&near).expect("take");
    assert_eq!(taken.state.snd_una, first.state.snd_una.wrapping_add(100));
    assert!(taken.unacknowledged == to_far.bytes(100, 900), "wrong bytes");
    // The peer has never received those hundred bytes, so this connection cannot go on.
    sidestep_repair::abandon(&near).expect("abandon");
    drop(far);
}
