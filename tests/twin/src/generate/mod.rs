//! Programs from seeds. The generated program does not depend on the results of calls, so a seed determines a program.

mod bytes;
mod descriptors;
mod events;
mod kinds;
mod spoil;
mod world;

use crate::program::{Act, Arg, Handling, Step};
pub use events::EDGE;
use world::World;

/// A program of about this many steps.
pub fn program(seed: u64, steps: usize) -> Vec<Step> {
    let mut world = World::new(seed);
    (0..3).for_each(|_| descriptors::pair(&mut world));
    while world.steps.len() < steps {
        next(&mut world);
    }
    world.steps
}

/// A possible next step, and its weight.
type Choice = (u64, fn(&mut World));

const CHOICES: &[Choice] = &[
    (230, bytes::send),
    (230, bytes::receive),
    (90, events::poll),
    (40, events::select),
    (70, events::control),
    (90, events::wait),
    (30, descriptors::look),
    (30, descriptors::option),
    (25, descriptors::flags),
    (25, descriptors::duplicate),
    (10, descriptors::close),
    (12, descriptors::shut),
    (18, descriptors::pair),
    (16, descriptors::other_kind),
    (16, descriptors::listen_connect_accept),
    (12, signals),
    (6, forks),
    (5, bytes::fill_and_drain),
    (3, operator),
    (2, nap),
    (3, closes_behind_backs),
];

fn next(world: &mut World) {
    let all = CHOICES.iter().map(|(weight, _)| weight).sum();
    let mut at = world.rng.below(all);
    for (weight, make) in CHOICES {
        if at < *weight {
            return make(world);
        }
        at -= weight;
    }
}

fn signals(world: &mut World) {
    if !world.mood.signals {
        return;
    }
    let at = world.any_actor();
    let signal = *world.rng.pick(&[libc::SIGUSR1, libc::SIGUSR2]);
    if world.rng.below(6) == 0 {
        let on = world.rng.below(2) as i64;
        return world.sound_call(at, "siginterrupt", vec![Arg::Num(signal.into()), Arg::Num(on)]);
    }
    let act = match world.rng.below(3) {
        0 => {
            let signal = *world.rng.pick(&[libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE]);
            let how = *world.rng.pick(&[Handling::Restart, Handling::Interrupt, Handling::Interrupt, Handling::Ignore]);
            Act::Handler { signal, how }
        }
        _ => Act::Signal { signal },
    };
    world.push(at, act);
}

/// Forks a child, or ends one.
fn forks(world: &mut World) {
    if !world.mood.forks {
        return;
    }
    let children: Vec<u8> = world.actors.keys().copied().filter(|at| *at >= 2).collect();
    if !children.is_empty() && world.rng.below(2) == 0 {
        let at = *world.rng.pick(&children);
        world.actors.remove(&at);
        let code = world.rng.below(4) as u8;
        return world.push(at, Act::Exit { code });
    }
    if children.len() >= 2 {
        return;
    }
    let parent = world.any_actor();
    let child = world.next_child;
    world.next_child += 1;
    let slots = world.actors[&parent];
    world.actors.insert(child, slots);
    world.push(parent, Act::Fork { child });
}

fn operator(world: &mut World) {
    if world.mood.operator {
        let detach = world.rng.below(2) == 0;
        world.push(0, Act::Operator { detach });
    }
}

/// Sometimes long enough for a ring to count as stalled.
fn nap(world: &mut World) {
    let ms = *world.rng.pick(&[1, 3, 25]);
    world.push(0, Act::Nap { ms });
}

fn closes_behind_backs(world: &mut World) {
    if world.mood.closes_behind_backs {
        descriptors::close_behind(world);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{format, parse};

    #[test]
    fn a_seed_is_a_program() {
        assert_eq!(program(7, 200), program(7, 200));
        assert_ne!(program(7, 200), program(8, 200));
    }

    #[test]
    fn a_program_is_a_file() {
        for seed in 0..20 {
            let steps = program(seed, 100);
            assert_eq!(parse(&format(&steps)).expect("its own format"), steps);
        }
    }

    /// The executors know all calls that can be generated.
    #[test]
    fn every_call_is_made_by_some_program() {
        let made: std::collections::BTreeSet<String> = (0..400)
            .flat_map(|seed| program(seed, 200))
            .filter_map(|step| if let Act::Call(call) = step.act { Some(call.name) } else { None })
            .collect();
        let known: std::collections::BTreeSet<String> = crate::calls::CALLS.iter().map(|c| c.name.to_owned()).collect();
        assert_eq!(made, known);
    }
}
