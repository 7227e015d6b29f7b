//! Steps of both ends of a connection in any order. With honest words every byte arrives once and in order; with
//! words that say anything nothing panics, and nobody reads or writes more than a ring.

use super::conn_world::{Step, World};
use super::input::Input;
use sidestep_abi::link::FROZEN;
use sidestep_abi::sync::Ordering::Relaxed;

fn step(bytes: &mut Input) -> Step {
    match bytes.below(16) {
        0..=4 => Step::Write(1 + bytes.below(24)),
        5..=8 => Step::Read(1 + bytes.below(24)),
        9 | 10 => Step::Begin,
        11 if bytes.below(6) == 0 => Step::EnterAhead,
        11 => Step::End,
        12 => Step::ReaderFreeze,
        13 => Step::BrokerFreeze,
        14 if bytes.below(2) == 0 => Step::Refuse,
        14 => Step::Ambush,
        _ => match bytes.below(4) {
            0 => Step::Ready(bytes.below(4) > 0),
            1 if bytes.below(2) == 0 => Step::Deputy(bytes.below(8)),
            1 => Step::Discard,
            2 => Step::Look(bytes.below(8)),
            _ => Step::Look(usize::MAX),
        },
    }
}

fn lie(world: &World, bytes: &mut Input) {
    let near = [0, world.tx.pos(), world.rx.pos(), world.rx.pos() | FROZEN, u64::MAX, FROZEN];
    let value = bytes.hostile(&near);
    match bytes.below(13) {
        0 => world.writer.tail.store(value, Relaxed),
        1 => world.writer.base.store(value, Relaxed),
        2 => world.writer.ring_from.store(value, Relaxed),
        3 => world.writer.epoch.store(value as u32, Relaxed),
        4 => world.side.ready.store(value as u32, Relaxed),
        5 => world.side.seen_epoch.store(value as u32, Relaxed),
        6 => world.side.froze.store(value as u32, Relaxed),
        7 => world.writer.fin.store(value as u32, Relaxed),
        8 => world.writer.resume.store(value, Relaxed),
        9 => world.writer.copied.store(value, Relaxed),
        10 => world.writer.sent_to.store(value, Relaxed),
        11 => world.writer.complete.store(value as u32, Relaxed),
        _ => world.reader.head.store(value, Relaxed),
    }
}

pub fn run(data: &[u8]) {
    let mut bytes = Input::new(data);
    let mut world = World::new();
    if bytes.byte() & 1 == 0 {
        while !bytes.is_empty() {
            world.apply(step(&mut bytes)).expect("nobody lies");
        }
        world.drain();
        return;
    }
    world.distrust();
    while !bytes.is_empty() {
        if bytes.below(3) == 0 {
            lie(&world, &mut bytes);
        }
        // The library ends a connection at the first lie; going on finds more.
        let _ = world.apply(step(&mut bytes));
    }
}
