//! Calls that move bytes.

use crate::program::{Act, ActorId, Arg, Msg, Part, Slot};

use super::world::{What, World};

/// Most bytes under way in one direction: they fit into every buffer, and into the smallest ring.
const UNREAD: u32 = 3000;
const SMALL: u64 = 1200;

fn num(n: impl Into<i64>) -> Arg {
    Arg::Num(n.into())
}

pub fn send(world: &mut World) {
    let at = world.any_actor();
    let Some(slot) = target(world, at, |what| matches!(what, What::PipeWrite | What::Unix | What::EventFd | What::Udp))
    else {
        return;
    };
    let mut len = world.rng.size(SMALL) as u32;
    if let What::Connection { number, end } = world.what(at, slot) {
        let unread = &mut world.unread[number][end];
        if *unread + len > UNREAD {
            return receive_from(world, number, 1 - end);
        }
        *unread += len;
    }
    if world.what(at, slot) == What::EventFd {
        len = 8;
    }
    send_to(world, at, slot, len);
}

fn target(world: &mut World, at: ActorId, other: impl Fn(What) -> bool) -> Option<Slot> {
    if world.rng.below(12) == 0 {
        return world.slot_of(at, other);
    }
    world.connection(at)
}

fn send_flags(world: &mut World) -> i32 {
    let common = [0, 0, 0, libc::MSG_NOSIGNAL, libc::MSG_DONTWAIT, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL];
    let rare = [libc::MSG_EOR, libc::MSG_CONFIRM, libc::MSG_DONTROUTE, 0x0800_0000, libc::MSG_TRUNC];
    match world.rng.below(10) {
        0 => *world.rng.pick(&rare),
        1 if world.mood.urgent => libc::MSG_OOB,
        _ => *world.rng.pick(&common),
    }
}

const SENDS: &[&str] = &[
    "write",
    "write",
    "__write",
    "writev",
    "writev",
    "pwritev2",
    "pwritev64v2",
    "send",
    "send",
    "__send",
    "sendto",
    "sendmsg",
    "sendmsg",
    "sendmmsg",
    "sendfile",
    "sendfile64",
    "vmsplice",
    "splice",
    "tee",
    "more",
];

fn send_to(world: &mut World, at: ActorId, slot: Slot, len: u32) {
    let name = world.one_of(SENDS);
    let flags = send_flags(world);
    let data = Arg::Data { len, good: len };
    let fd = Arg::Fd(slot);
    let args = match name {
        "write" | "__write" => vec![fd, data, num(len)],
        "writev" => vec_args(world, fd, len),
        "pwritev2" | "pwritev64v2" => {
            let mut args = vec_args(world, fd, len);
            args.extend([num(-1), num(*world.rng.pick(&[0, 0, 0, libc::RWF_NOWAIT, libc::RWF_HIPRI]))]);
            args
        }
        "send" | "__send" => vec![fd, data, num(len), num(flags)],
        "sendto" => vec![fd, data, num(len), num(flags), Arg::Null, num(0)],
        "sendmsg" => vec![fd, Arg::Msg(message(world, len, 0)), num(flags)],
        "sendmmsg" => {
            // A call that waits for bytes may get only those of the first message, depending on timing.
            let most = if world.mood.quiet { 3 } else { 1 };
            let (msgs, n) = messages(world, len, 0, most);
            vec![fd, msgs, num(n), num(flags)]
        }
        "more" if world.mood.quiet => return with_more(world, at, slot, len),
        "more" => return,
        _ => return from_elsewhere(world, at, slot, len, name),
    };
    world.call(at, name, args);
}

/// Bytes that the kernel holds back until more follow, and more at once. By ring they arrive earlier (LIMITATIONS: "Order of
/// effects"), so no call may be waiting for them.
fn with_more(world: &mut World, at: ActorId, slot: Slot, len: u32) {
    let args = |flags, len| vec![Arg::Fd(slot), Arg::Data { len, good: len }, num(len), num(flags)];
    world.sound_call(at, "send", args(libc::MSG_MORE | libc::MSG_NOSIGNAL, len / 2));
    world.sound_call(at, "send", args(libc::MSG_NOSIGNAL, len - len / 2));
}

/// sendfile and the splice family, if what they need is there.
fn from_elsewhere(world: &mut World, at: ActorId, slot: Slot, len: u32, name: &str) {
    let fd = Arg::Fd(slot);
    let args = match name {
        "sendfile" | "sendfile64" => {
            let Some(file) = world.slot_of(at, |what| what == What::File) else { return };
            let offset = if world.rng.below(2) == 0 { Arg::Null } else { Arg::Offset(world.rng.below(4000) as i64) };
            vec![fd, Arg::Fd(file), offset, num(len)]
        }
        "splice" => {
            let Some(pipe) = world.slot_of(at, |what| what == What::PipeRead) else { return };
            vec![Arg::Fd(pipe), Arg::Null, fd, Arg::Null, num(len), num(libc::SPLICE_F_NONBLOCK)]
        }
        "tee" => {
            let Some(pipe) = world.slot_of(at, |what| what == What::PipeRead) else { return };
            vec![Arg::Fd(pipe), fd, num(len), num(libc::SPLICE_F_NONBLOCK)]
        }
        _ => {
            let Some(pipe) = world.slot_of(at, |what| what == What::PipeWrite) else { return };
            let parts = parts(world, len);
            let n = parts.len() as i64;
            vec![Arg::Fd(pipe), Arg::Vec { parts }, num(n), num(libc::SPLICE_F_NONBLOCK)]
        }
    };
    world.call(at, name, args);
}

pub fn parts(world: &mut World, len: u32) -> Vec<Part> {
    let mut left = len;
    let mut parts = vec![];
    for _ in 0..world.rng.below(4) {
        let len = world.rng.below(u64::from(left) + 1) as u32;
        left -= len;
        parts.push(Part { len, bad: false, claim: None });
    }
    parts.push(Part { len: left, bad: false, claim: None });
    parts
}

fn vec_args(world: &mut World, fd: Arg, len: u32) -> Vec<Arg> {
    let parts = parts(world, len);
    let n = parts.len() as i64;
    vec![fd, Arg::Vec { parts }, num(n)]
}

fn message(world: &mut World, len: u32, extra: u32) -> Msg {
    Msg { parts: parts(world, len), name: extra, control: extra }
}

fn messages(world: &mut World, len: u32, extra: u32, most: u64) -> (Arg, i64) {
    let n = 1 + world.rng.below(most) as u32;
    let mut msgs: Vec<Msg> = (1..n).map(|_| message(world, len / n, extra)).collect();
    msgs.push(message(world, len - len / n * (n - 1), extra));
    let n = msgs.len() as i64;
    (Arg::Msgs(msgs), n)
}

pub fn receive(world: &mut World) {
    let at = world.any_actor();
    let Some(slot) =
        target(world, at, |what| matches!(what, What::PipeRead | What::Unix | What::EventFd | What::Udp | What::File))
    else {
        return;
    };
    let len = world.rng.size(2 * SMALL) as u32;
    receive_at(world, at, slot, len);
}

/// Reads everything that was sent to the end.
fn receive_from(world: &mut World, number: usize, end: usize) {
    let holds = |what| what == What::Connection { number, end };
    let actors: Vec<ActorId> = world.actors.keys().copied().collect();
    for at in actors {
        if let Some(slot) = world.slot_of(at, holds) {
            return receive_at(world, at, slot, 2 * UNREAD);
        }
    }
    world.unread[number][1 - end] = 0; // nobody holds that end any more
}

const RECEIVES: &[&str] = &[
    "read",
    "read",
    "__read",
    "__read_chk",
    "readv",
    "readv",
    "preadv2",
    "preadv64v2",
    "recv",
    "recv",
    "recv",
    "__recv_chk",
    "recvfrom",
    "__recvfrom_chk",
    "recvmsg",
    "recvmsg",
    "recvmmsg",
];

fn receive_flags(world: &mut World, blocks: bool) -> i32 {
    let wait = if blocks { 0 } else { libc::MSG_DONTWAIT };
    let (peek, all) = (libc::MSG_PEEK, libc::MSG_WAITALL);
    let rare = [libc::MSG_TRUNC, libc::MSG_ERRQUEUE, libc::MSG_CMSG_CLOEXEC, 0x0800_0000, peek | libc::MSG_TRUNC];
    wait | match world.rng.below(12) {
        0 | 1 => peek,
        2 => all,
        3 => *world.rng.pick(&rare),
        4 if world.mood.urgent => libc::MSG_OOB,
        _ => 0,
    }
}

fn receive_at(world: &mut World, at: ActorId, slot: Slot, len: u32) {
    let name = world.one_of(RECEIVES);
    // A thread that waits for bytes disturbs all other readers.
    let blocks = !world.mood.quiet && world.rng.below(5) == 0;
    let flags = receive_flags(world, blocks);
    let takes = flags & (libc::MSG_PEEK | libc::MSG_OOB | libc::MSG_ERRQUEUE) == 0;
    if takes && let What::Connection { number, end } = world.what(at, slot) {
        let unread = &mut world.unread[number][1 - end];
        *unread = unread.saturating_sub(len);
    }
    let room = Arg::Room { len, good: len };
    let fd = Arg::Fd(slot);
    let named = world.rng.below(2) == 0;
    let sender = if named { [Arg::Value { len: 28 }, Arg::Len(28)] } else { [Arg::Null, Arg::Null] };
    let extra = if named { 128 } else { 0 };
    let args = match name {
        "read" | "__read" => vec![fd, room, num(len)],
        "__read_chk" => vec![fd, room, num(len), num(len)],
        "readv" => vec_args(world, fd, len),
        "preadv2" | "preadv64v2" => {
            let mut args = vec_args(world, fd, len);
            args.extend([num(-1), num(*world.rng.pick(&[0, 0, libc::RWF_NOWAIT, libc::RWF_HIPRI, libc::RWF_APPEND]))]);
            args
        }
        "recv" => vec![fd, room, num(len), num(flags)],
        "__recv_chk" => vec![fd, room, num(len), num(len), num(flags)],
        "recvfrom" => [vec![fd, room, num(len), num(flags)], sender.to_vec()].concat(),
        "__recvfrom_chk" => [vec![fd, room, num(len), num(len), num(flags)], sender.to_vec()].concat(),
        "recvmsg" => vec![fd, Arg::Msg(message(world, len, extra)), num(flags)],
        _ => {
            let (msgs, n) = messages(world, len, extra, 3);
            // recvmmsg waits for all of its messages unless MSG_WAITFORONE is given.
            vec![fd, msgs, num(n), num(flags | libc::MSG_WAITFORONE), Arg::Null]
        }
    };
    world.call(at, name, args);
}

/// Fills one direction, looks at it, and empties it.
pub fn fill_and_drain(world: &mut World) {
    if !world.mood.fills {
        return;
    }
    let at = world.rng.below(2) as ActorId;
    let Some(slot) = world.connection(at) else { return };
    let What::Connection { number, end } = world.what(at, slot) else { return };
    let other = 1 - at;
    let Some(reader) = world.slot_of(other, |what| what == What::Connection { number, end: 1 - end }) else { return };
    world.push(at, Act::Fill { slot });
    for _ in 0..world.rng.below(4) {
        super::events::look_at_full(world, at, slot);
    }
    world.unread[number][end] = 0;
    world.push(other, Act::Drain { slot: reader });
}
