//! Steps of both ends of a connection in any order: the properties that proptest, the fuzzer and a fixed seed try.
#![allow(dead_code)] // each engine uses its part

use super::conn_world::{Step, World};
use super::input::Input;

/// With honest words every byte arrives once and in order.
pub fn every_byte_once_and_in_order(steps: impl IntoIterator<Item = Step>) {
    let mut world = World::new();
    for step in steps {
        world.apply(step).expect("no violation");
    }
    world.drain();
}

/// Whatever the writer does, and wherever it stops for ever: a reader that has not left the ring can read without it what it
/// has written.
pub fn no_byte_waits_for_its_writer(steps: impl IntoIterator<Item = Step>) {
    let mut world = World::new();
    for step in steps.into_iter().filter(|step| !step.is_leaving()) {
        world.apply(step).expect("no violation");
    }
    world.read_all();
}

/// With words that say anything nothing panics, and nobody reads or writes more than a ring. The library ends a connection at
/// the first violation; going on finds more.
pub fn violations_are_contained(bytes: &mut Input) {
    let mut world = World::hostile();
    while !bytes.is_empty() {
        if bytes.below(3) == 0 {
            world.violate(bytes);
        }
        let _ = world.apply(Step::from_bytes(bytes));
    }
}

/// Steps until the bytes are used up. `alone`: the writer sometimes ends a stretch without copies.
pub fn steps<'a>(bytes: &'a mut Input<'_>, alone: bool) -> impl Iterator<Item = Step> + 'a {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let is_alone = alone && bytes.below(20) == 0;
        Some(if is_alone { Step::EndAlone } else { Step::from_bytes(bytes) })
    })
}

pub fn run(data: &[u8]) {
    let mut bytes = Input::new(data);
    match bytes.byte() % 4 {
        0 => every_byte_once_and_in_order(steps(&mut bytes, false)),
        1 => no_byte_waits_for_its_writer(steps(&mut bytes, true)),
        _ => violations_are_contained(&mut bytes),
    }
}
