//! Making, examining, duplicating and closing descriptors.

use crate::program::{Act, ActorId, Arg, Call, Kind, Slot};

use super::kinds;
use super::world::{What, World};

fn num(n: impl Into<i64>) -> Arg {
    Arg::Num(n.into())
}

pub fn pair(world: &mut World) {
    let (a, b) = (world.free_slot(0), world.free_slot(1));
    let number = world.unread.len();
    world.unread.push([0; 2]);
    // The first connection always, so that some bytes of every program go by ring.
    let warm = number == 0 || !world.mood.cold && world.rng.below(8) > 0;
    let v6 = world.rng.below(4) == 0;
    let at = world.rng.below(2) as ActorId;
    world.push(at, Act::Pair { a, b, v6, warm });
    for (at, slot, end) in [(0, a, 0), (1, b, 1)] {
        world.set(at, slot, What::Connection { number, end });
        if world.rng.below(10) < world.mood.nonblocking {
            let args = vec![Arg::Fd(slot), num(libc::F_SETFL), num(libc::O_RDWR | libc::O_NONBLOCK)];
            world.sound_call(at, "fcntl", args);
        }
    }
}

pub fn look(world: &mut World) {
    let at = world.any_actor();
    let fd = Arg::Fd(world.subject(at));
    let value = [Arg::Value { len: 28 }, Arg::Len(28)].to_vec();
    match world.rng.below(6) {
        0 => world.call(at, "getsockname", [vec![fd], value].concat()),
        1 => world.call(at, "getpeername", [vec![fd], value].concat()),
        2 => {
            let request =
                *world.rng.pick(&[libc::FIONREAD, libc::FIONREAD, libc::FIOCLEX, libc::FIONCLEX, 0x8905, 0x1234]);
            world.call(at, "ioctl", vec![fd, num(request as i64), Arg::Int(-7)]);
        }
        _ => {
            let (level, name, len) = *world.rng.pick(kinds::ASKED);
            let args = vec![fd, num(level), num(name), Arg::Value { len }, Arg::Len(len as i32)];
            world.call(at, "getsockopt", args);
        }
    }
}

pub fn option(world: &mut World) {
    let at = world.any_actor();
    let slot = world.subject(at);
    let (level, name, value) = kinds::setting(&mut world.rng);
    let len = value.len() as i64;
    world.call(at, "setsockopt", vec![Arg::Fd(slot), num(level), num(name), Arg::Bytes(value), num(len)]);
}

/// Of fcntl.h.
const F_GETSIG: i32 = 11;

pub fn flags(world: &mut World) {
    let at = world.any_actor();
    let fd = Arg::Fd(world.subject(at));
    if world.mood.quiet {
        return;
    }
    if world.rng.below(4) == 0 {
        let on = world.rng.below(2) as i32;
        return world.call(at, "ioctl", vec![fd, num(libc::FIONBIO as i64), Arg::Int(on)]);
    }
    let name = world.one_of(&["fcntl", "fcntl64", "__fcntl"]);
    let (command, argument) = *world.rng.pick(&[
        (libc::F_GETFL, 0),
        (libc::F_GETFD, 0),
        (libc::F_SETFL, libc::O_RDWR),
        (libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK),
        (libc::F_SETFL, libc::O_NONBLOCK),
        (libc::F_SETFD, libc::FD_CLOEXEC),
        (libc::F_SETFD, 0),
        (libc::F_GETOWN, 0),
        (F_GETSIG, 0),
        (libc::F_DUPFD, -1),
        (7777, 1),
    ]);
    world.call(at, name, vec![fd, num(command), num(argument)]);
}

pub fn duplicate(world: &mut World) {
    let at = world.any_actor();
    let old = world.subject(at);
    let what = world.what(at, old);
    let new = if world.rng.below(3) == 0 { world.subject(at) } else { world.free_slot(at) };
    let name = world.one_of(&["dup", "dup2", "__dup2", "dup3", "fcntl", "dup onto itself"]);
    let (name, args, into) = match name {
        "dup" => ("dup", vec![Arg::Fd(old)], Some(new)),
        "fcntl" => {
            let command = *world.rng.pick(&[libc::F_DUPFD, libc::F_DUPFD_CLOEXEC]);
            let least = *world.rng.pick(&[0, 3, 40]);
            ("fcntl", vec![Arg::Fd(old), num(command), num(least)], Some(new))
        }
        "dup3" => {
            let flags = *world.rng.pick(&[0, libc::O_CLOEXEC, 1]);
            ("dup3", vec![Arg::Fd(old), Arg::Fd(new), num(flags)], None)
        }
        "dup onto itself" => (world.one_of(&["dup2", "dup3"]), vec![Arg::Fd(old), Arg::Fd(old), num(0)], None),
        name => (name, vec![Arg::Fd(old), Arg::Fd(new)], None),
    };
    // Nothing is duplicated onto a number that was never open.
    let onto = into.is_some() || world.what(at, new) != What::Nothing;
    world.call_with(at, Call { name: name.into(), args, raw: false, into, wait_ms: None });
    if onto && name != "dup onto itself" {
        world.set(at, new, what);
    }
}

pub fn close(world: &mut World) {
    let at = world.any_actor();
    let slot = world.subject(at);
    match world.rng.below(4) {
        0 => world.call(at, "__close", vec![Arg::Fd(slot)]),
        1 => {
            let flags = *world.rng.pick(&[0, libc::CLOSE_RANGE_CLOEXEC as i32, 64]);
            world.call(at, "close_range", vec![Arg::Fd(slot), Arg::Fd(slot), num(flags)]);
            if flags != 0 {
                return;
            }
        }
        2 => world.call(at, "close", vec![Arg::Fd(slot)]),
        _ => world.push(at, Act::Close { slot }),
    }
    world.set(at, slot, What::Nothing);
}

/// A close that other slots with the same number do not notice.
pub fn close_behind(world: &mut World) {
    let at = world.any_actor();
    let slot = world.subject(at);
    world.push(at, Act::Close { slot });
}

pub fn shut(world: &mut World) {
    // Early in a program it would end what is to be tested.
    if world.steps.len() < 40 && world.rng.below(4) > 0 {
        return;
    }
    let at = world.any_actor();
    let slot = world.subject(at);
    let how = *world.rng.pick(&[libc::SHUT_WR, libc::SHUT_WR, libc::SHUT_RD, libc::SHUT_RDWR, 3, -1]);
    world.call(at, "shutdown", vec![Arg::Fd(slot), num(how)]);
}

pub fn other_kind(world: &mut World) {
    let at = world.any_actor();
    let slot = world.free_slot(at);
    let (kind, what) = *world.rng.pick(&[
        (Kind::Pipe, What::PipeRead),
        (Kind::UnixPair, What::Unix),
        (Kind::Udp, What::Udp),
        (Kind::Tcp, What::Socket { v6: false }),
        (Kind::Tcp6, What::Socket { v6: true }),
        (Kind::File, What::File),
        (Kind::EventFd, What::EventFd),
        (Kind::Epoll, What::Epoll),
    ]);
    let second = match kind {
        Kind::Pipe => Some(What::PipeWrite),
        Kind::UnixPair => Some(What::Unix),
        _ => None,
    };
    if second.is_some() && slot as usize + 1 == crate::program::SLOTS {
        return;
    }
    world.push(at, Act::Make { slot, kind });
    world.set(at, slot, what);
    if let Some(second) = second {
        world.set(at, slot + 1, second);
    }
}

/// Connections made by single calls.
pub fn listen_connect_accept(world: &mut World) {
    let at = world.any_actor();
    let listener = world.slot_of(at, |what| matches!(what, What::Listener { .. }));
    match (world.rng.below(6), listener) {
        (0, None) | (5, None) => {
            let slot = world.free_slot(at);
            let (v6, nonblock) = (world.rng.below(3) == 0, world.rng.below(4) > 0);
            let name = world.next_name;
            world.next_name += 1;
            world.push(at, Act::Listen { slot, name, v6, nonblock });
            world.set(at, slot, What::Listener { name, v6 });
        }
        (1, _) => socket(world, at),
        (2 | 3, Some(listener)) => accept(world, at, listener),
        (4, _) => {
            let slot = world.subject(at);
            let backlog = *world.rng.pick(&[0, 5, -1]);
            world.call(at, "listen", vec![Arg::Fd(slot), num(backlog)]);
        }
        _ => connect(world, at),
    }
}

fn socket(world: &mut World, at: ActorId) {
    let slot = world.free_slot(at);
    let nonblock = if world.rng.below(2) == 0 { libc::SOCK_NONBLOCK } else { 0 };
    let (family, v6) = if world.rng.below(3) == 0 { (libc::AF_INET6, true) } else { (libc::AF_INET, false) };
    let args = vec![num(family), num(libc::SOCK_STREAM | libc::SOCK_CLOEXEC | nonblock), num(0)];
    let call = Call { name: "socket".into(), args, raw: false, into: Some(slot), wait_ms: None };
    world.push(at, Act::Call(call));
    world.set(at, slot, What::Socket { v6 });
    if world.rng.below(4) == 0 {
        let bytes = [&(family as u16).to_ne_bytes()[..], &[0; 26]].concat();
        let len = *world.rng.pick(&[28, 16, 4]);
        world.call(at, "bind", vec![Arg::Fd(slot), Arg::Bytes(bytes), num(len)]);
    }
}

fn accept(world: &mut World, at: ActorId, listener: Slot) {
    let slot = world.free_slot(at);
    let address = match world.rng.below(3) {
        0 => vec![Arg::Value { len: 28 }, Arg::Len(28)],
        1 => vec![Arg::Value { len: 28 }, Arg::Len(6)],
        _ => vec![Arg::Null, Arg::Null],
    };
    let mut args = [vec![Arg::Fd(listener)], address].concat();
    let name = world.one_of(&["accept", "accept4"]);
    if name == "accept4" {
        args.push(num(*world.rng.pick(&[0, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC, 5])));
    }
    world.call_with(at, Call { name: name.into(), args, raw: false, into: Some(slot), wait_ms: None });
    no_delay(world, at, slot);
    // The generator does not know which connection this is, if any, so few bytes are sent on it.
    world.unread.push([0; 2]);
    world.set(at, slot, What::Connection { number: world.unread.len() - 1, end: 0 });
}

fn connect(world: &mut World, at: ActorId) {
    let listeners: Vec<(u8, bool)> = world
        .actors
        .values()
        .flatten()
        .filter_map(|what| if let What::Listener { name, v6 } = what { Some((*name, *v6)) } else { None })
        .collect();
    let Some(&(name, v6)) = listeners.first() else { return };
    let Some(slot) = world.slot_of(at, |what| what == What::Socket { v6 }) else { return };
    let len = if v6 { 28 } else { 16 };
    let call = world.one_of(&["connect", "__connect"]);
    world.call(at, call, vec![Arg::Fd(slot), Arg::Address { name, port: 0, v6 }, num(len)]);
    no_delay(world, at, slot);
    world.unread.push([0; 2]);
    world.set(at, slot, What::Connection { number: world.unread.len() - 1, end: 0 });
}

fn no_delay(world: &mut World, at: ActorId, slot: Slot) {
    let value = Arg::Bytes(1i32.to_ne_bytes().to_vec());
    let args = vec![Arg::Fd(slot), num(libc::IPPROTO_TCP), num(libc::TCP_NODELAY), value, num(4)];
    world.sound_call(at, "setsockopt", args);
}
