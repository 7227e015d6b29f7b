//! poll, select and epoll.

use crate::program::{Act, ActorId, Arg, Call, Slot, Watched};

use super::world::{What, World};

fn num(n: impl Into<i64>) -> Arg {
    Arg::Num(n.into())
}

/// The timeout of a wait: as an argument in milliseconds, and as the time after which the wait ends by itself.
fn timeout_ms(world: &mut World) -> (i32, Option<u32>) {
    match world.rng.below(24) {
        _ if world.mood.quiet => (0, None),
        0 => (-1, None),
        1 => (*world.rng.pick(&[-2, i32::MIN, i32::MAX, 1_000_000]), None),
        2 | 3 => {
            let ms = *world.rng.pick(&[1, 12, 30]);
            (ms as i32, Some(ms))
        }
        _ => (0, None),
    }
}

/// A timeout as seconds and fractions; `unit` fractions are a second.
fn parts_of(world: &mut World, unit: i64) -> ((i64, i64), Option<u32>) {
    let (ms, wait) = timeout_ms(world);
    match world.rng.below(40) {
        _ if world.mood.quiet => ((0, 0), None),
        0 => ((-1, 0), None),
        1 => ((0, -1), None),
        // glibc turns a million microseconds into a second, which would end at any step.
        2 if unit > 1_000_000 => ((0, unit), None),
        3 => ((i64::MAX, 0), None),
        // Not as microseconds: glibc's select() looks at 32 bits of them only.
        4 if unit > 1_000_000 => ((0, i64::MAX), None),
        _ if ms < 0 => ((1 << 40, 5), None),
        _ => (((ms / 1000).into(), i64::from(ms % 1000) * (unit / 1000)), wait),
    }
}

fn spec(world: &mut World) -> (Arg, Option<u32>) {
    if world.rng.below(40) == 0 && !world.mood.quiet {
        return (Arg::Null, None);
    }
    let ((sec, part), wait) = parts_of(world, 1_000_000_000);
    (Arg::Timespec { sec, part }, wait)
}

fn mask(world: &mut World) -> Arg {
    match world.rng.below(3) {
        0 => Arg::Signals(vec![libc::SIGUSR1]),
        1 => Arg::Signals(vec![]),
        _ => Arg::Null,
    }
}

fn push(world: &mut World, at: ActorId, name: &str, args: Vec<Arg>, wait_ms: Option<u32>) {
    world.call_with(at, Call { name: name.into(), args, raw: false, into: None, wait_ms });
}

const POLL_EVENTS: &[i16] = &[
    libc::POLLIN,
    libc::POLLIN,
    libc::POLLOUT,
    libc::POLLIN | libc::POLLOUT,
    libc::POLLIN | libc::POLLRDHUP,
    libc::POLLRDHUP,
    libc::POLLPRI | libc::POLLIN,
    libc::POLLRDNORM | libc::POLLWRNORM,
    libc::POLLRDBAND | libc::POLLWRBAND,
    0,
    -1,
];

fn poll_list(world: &mut World, at: ActorId, n: u64) -> Vec<(Watched, i16)> {
    let mut list = vec![];
    for _ in 0..n {
        let events = *world.rng.pick(POLL_EVENTS);
        let watched = match world.rng.below(14) {
            0 => Watched::Number(*world.rng.pick(&[-1, -5, i32::MIN, i32::MAX, 99_998])),
            _ => Watched::Slot(world.subject(at)),
        };
        list.push((watched, events));
    }
    list
}

pub fn poll(world: &mut World) {
    let at = world.any_actor();
    let n = world.rng.below(5);
    let list = poll_list(world, at, n);
    poll_with(world, at, list);
}

fn poll_with(world: &mut World, at: ActorId, list: Vec<(Watched, i16)>) {
    let name = world.one_of(&["poll", "poll", "__poll", "__poll_chk", "ppoll", "__ppoll_chk"]);
    let n = list.len() as i64;
    let list = Arg::Polls(list);
    if name.contains("ppoll") {
        let (time, wait) = spec(world);
        let mut args = vec![list, num(n), time, mask(world)];
        if name == "__ppoll_chk" {
            args.push(num(n * 8));
        }
        return push(world, at, name, args, wait);
    }
    let (ms, wait) = timeout_ms(world);
    let mut args = vec![list, num(n), num(ms)];
    if name == "__poll_chk" {
        args.push(num(n * 8));
    }
    push(world, at, name, args, wait);
}

pub fn select(world: &mut World) {
    let at = world.any_actor();
    let name = world.one_of(&["select", "__select", "pselect"]);
    let mut sets = vec![];
    for _ in 0..3 {
        let set: Vec<Slot> = (0..world.rng.below(4)).map(|_| world.subject(at)).collect();
        sets.push(if world.rng.below(3) == 0 { Arg::Null } else { Arg::Set(set) });
    }
    let limit = *world.rng.pick(&[1024, 1024, 1024, 1024, 64, 8, 0, -1]);
    let mut args = vec![num(limit)];
    args.extend(sets);
    if name == "pselect" {
        let (time, wait) = spec(world);
        args.extend([time, mask(world)]);
        return push(world, at, name, args, wait);
    }
    let ((sec, part), wait) = parts_of(world, 1_000_000);
    args.push(Arg::Timeval { sec, part });
    push(world, at, name, args, wait);
}

fn set_of(world: &mut World, at: ActorId) -> Slot {
    if let Some(slot) = world.slot_of(at, |what| what == What::Epoll) {
        return slot;
    }
    let slot = world.free_slot(at);
    let (name, arg) = *world.rng.pick(&[
        ("epoll_create", 1),
        ("epoll_create", 0),
        ("epoll_create1", 0),
        ("epoll_create1", libc::EPOLL_CLOEXEC),
        ("epoll_create1", 1),
    ]);
    let made = arg > 1 || name == "epoll_create1" && arg == 0 || name == "epoll_create" && arg == 1;
    let call = Call { name: name.into(), args: vec![num(arg)], raw: false, into: Some(slot), wait_ms: None };
    world.push(at, Act::Call(call));
    if made {
        world.set(at, slot, What::Epoll);
    }
    slot
}

/// Bit of an event's data: the registration is edge-triggered.
pub const EDGE: u64 = 1 << 32;

fn interest(world: &mut World) -> u32 {
    let flags = [libc::EPOLLIN, libc::EPOLLOUT, libc::EPOLLRDHUP, libc::EPOLLPRI, libc::EPOLLRDNORM, libc::EPOLLWRNORM];
    let mut events = 0;
    for (i, flag) in flags.iter().enumerate() {
        if world.rng.below([2, 2, 3, 8, 12, 12][i]) == 0 {
            events |= *flag as u32;
        }
    }
    events
        | match world.rng.below(16) {
            0..=4 => libc::EPOLLET as u32,
            5 | 6 => libc::EPOLLONESHOT as u32,
            7 => (libc::EPOLLET | libc::EPOLLONESHOT) as u32,
            8 => libc::EPOLLWAKEUP as u32,
            _ => 0,
        }
}

pub fn control(world: &mut World) {
    let at = world.any_actor();
    let set = set_of(world, at);
    let fd = world.subject(at);
    let op = *world.rng.pick(&[
        libc::EPOLL_CTL_ADD,
        libc::EPOLL_CTL_ADD,
        libc::EPOLL_CTL_ADD,
        libc::EPOLL_CTL_MOD,
        libc::EPOLL_CTL_MOD,
        libc::EPOLL_CTL_DEL,
        if world.mood.wrong > 0 { 77 } else { libc::EPOLL_CTL_ADD },
    ]);
    let mut events = interest(world);
    // Every set that watches a connection is woken (LIMITATIONS: "EPOLLEXCLUSIVE"). So the flag is used where it is an error,
    // or on other descriptors.
    let other = !matches!(world.what(at, fd), What::Connection { .. });
    if world.rng.below(12) == 0 && (other || op == libc::EPOLL_CTL_MOD || events & libc::EPOLLONESHOT as u32 != 0) {
        events |= libc::EPOLLEXCLUSIVE as u32;
    }
    let edge = if events & libc::EPOLLET as u32 != 0 { EDGE } else { 0 };
    let data = u64::from(fd) | u64::from(at) << 8 | edge;
    world.call(at, "epoll_ctl", vec![Arg::Fd(set), num(op), Arg::Fd(fd), Arg::Event { events, data }]);
}

pub fn wait(world: &mut World) {
    let at = world.any_actor();
    let set = set_of(world, at);
    wait_for(world, at, set);
}

fn wait_for(world: &mut World, at: ActorId, set: Slot) {
    let name = world.one_of(&["epoll_wait", "epoll_wait", "epoll_pwait", "epoll_pwait2"]);
    let room = *world.rng.pick(&[32, 32, 32, 32, 2, 1]);
    let events = Arg::Events { room };
    let head = vec![Arg::Fd(set), events, num(room)];
    if name == "epoll_pwait2" {
        let (time, wait) = spec(world);
        let mask = mask(world);
        return push(world, at, name, [head, vec![time, mask]].concat(), wait);
    }
    let (ms, wait) = timeout_ms(world);
    let mut args = [head, vec![num(ms)]].concat();
    if name == "epoll_pwait" {
        args.push(mask(world));
    }
    push(world, at, name, args, wait);
}

/// Looks at a connection whose buffers are full.
pub fn look_at_full(world: &mut World, at: ActorId, slot: Slot) {
    match world.rng.below(3) {
        0 => {
            let events = *world.rng.pick(POLL_EVENTS);
            poll_with(world, at, vec![(Watched::Slot(slot), events)]);
        }
        1 => {
            let (len, flags) = (100, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            let data = Arg::Data { len, good: len };
            world.call(at, "send", vec![Arg::Fd(slot), data, num(len), num(flags)]);
        }
        _ => {
            let set = set_of(world, at);
            wait_for(world, at, set);
        }
    }
}
