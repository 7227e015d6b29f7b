//! Frames that are sent.

use crate::frames::{EXPERIMENTAL, experimental, four, segment, tagged};
use crate::wire::{HERE, PATIENCE, THERE, Wire};
use sidestep_device::{CHUNK, Device};
use std::time::Duration;

/// Sends one frame, and waits until there is room for it.
fn send(device: &mut Device, parts: &[&[u8]]) {
    let sender = &mut device.queues[0].sender;
    crate::wire::until("no room", || {
        let mut outgoing = sender.outgoing();
        let is_there = outgoing.push(parts);
        outgoing.submit();
        sender.kick().unwrap();
        is_there
    });
}

#[test]
fn frames_arrive_at_the_peer_byte_for_byte() {
    let wire = Wire::new();
    let mut device = wire.open();
    let there = wire.packets(&wire.there).only(EXPERIMENTAL);
    // Each frame of the memory is used several times.
    for number in 0..300 {
        let frame = experimental(HERE, THERE, number, 60 + 5 * number as usize % 1454);
        let (head, tail) = frame.split_at(18);
        send(&mut device, &[head, b"", tail]);
        assert_eq!(there.receive(PATIENCE).unwrap(), frame);
    }
}

#[test]
fn a_tagged_frame_arrives_with_its_tag() {
    let wire = Wire::new();
    let mut device = wire.open();
    let there = wire.packets(&wire.there).only(0x0800);
    let mut frame = tagged(&[[0x8100, 0x2007]], &segment(four(), [4000, 80], b"tagged"));
    frame[..12].copy_from_slice(&[THERE, HERE].concat());
    send(&mut device, &[&frame]);
    assert_eq!(there.receive(PATIENCE).unwrap(), frame);
}

#[test]
fn long_frames_arrive_at_the_peer_byte_for_byte() {
    let wire = Wire::with(1, 9000);
    let mut device = wire.open();
    let there = wire.packets(&wire.there).only(EXPERIMENTAL);
    for length in [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1, 9014] {
        for number in 0..40 {
            let frame = experimental(HERE, THERE, number, length);
            send(&mut device, &[&frame]);
            assert_eq!(there.receive(PATIENCE).unwrap(), frame);
        }
    }
}

#[test]
fn what_is_filled_in_place_arrives_and_what_is_not_submitted_does_not() {
    let wire = Wire::new();
    let mut device = wire.open();
    let there = wire.packets(&wire.there).only(EXPERIMENTAL);
    let sender = &mut device.queues[0].sender;
    let frames: Vec<Vec<u8>> = (0..3).map(|number| experimental(HERE, THERE, number, 100)).collect();
    let fill = |sender: &mut sidestep_device::Sender, frames: &[Vec<u8>], submit: bool| {
        let mut outgoing = sender.outgoing();
        for frame in frames {
            outgoing.buffer().unwrap()[..frame.len()].copy_from_slice(frame);
            outgoing.commit(frame.len());
        }
        if submit {
            assert_eq!(outgoing.submit(), frames.len());
        }
    };
    fill(sender, &frames[..1], false);
    fill(sender, &frames[1..], true);
    assert_eq!(sender.waiting(), 2);
    assert!(there.receive(Duration::ZERO).is_none(), "nothing is sent without a kick");
    sender.kick().unwrap();
    assert_eq!(sender.waiting(), 0);
    assert_eq!([there.receive(PATIENCE).unwrap(), there.receive(PATIENCE).unwrap()], frames[1..]);
    assert!(there.receive(Duration::ZERO).is_none());
}

#[test]
fn one_kick_sends_a_whole_ring_and_all_of_it_is_free_again() {
    let wire = Wire::new();
    let mut device = wire.open();
    let there = wire.packets(&wire.there).only(EXPERIMENTAL);
    let sender = &mut device.queues[0].sender;
    for round in 0..5 {
        let mut outgoing = sender.outgoing();
        assert_eq!(outgoing.space(), 64, "round {round}");
        for number in 0..64 {
            assert!(outgoing.push(&[&experimental(HERE, THERE, number, 200)]));
        }
        assert!(!outgoing.push(&[&[1]]) && outgoing.buffer().is_none());
        outgoing.submit();
        sender.kick().unwrap();
        for number in 0..64 {
            assert_eq!(there.receive(PATIENCE).unwrap(), experimental(HERE, THERE, number, 200));
        }
    }
}

#[test]
fn frames_that_cannot_be_sent_are_refused() {
    let wire = Wire::new();
    let mut device = wire.open();
    let mut outgoing = device.queues[0].sender.outgoing();
    assert!(!outgoing.push(&[]) && !outgoing.push(&[b"", b""]), "no bytes");
    assert!(!outgoing.push(&[&vec![0; 18 * CHUNK]]), "more chunks than the kernel takes");
    assert_eq!(outgoing.space(), 64);
    assert_eq!(outgoing.submit(), 0);
}
