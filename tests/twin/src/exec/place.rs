//! Turns arguments into words, and into the memory to which they point.

use libc::{epoll_event, iovec, mmsghdr, msghdr, pollfd, sigset_t, sockaddr_in, sockaddr_in6, timespec, timeval};

use sidestep_posix::hosts::{self, Side};

use super::memory::Area;
use crate::data;
use crate::program::{Arg, Msg, Part, Slot, Watched};

/// Room is filled with this byte before a call, to see what the call has written.
pub const UNTOUCHED: u8 = 0xee;
/// Bytes of an fd_set for select: 1024 descriptors.
const SET_BYTES: usize = 128;

pub struct Context<'a> {
    pub slots: &'a [i32],
    /// Number of the step, which determines the bytes to send.
    pub step: usize,
    /// Whether the call sends: then vectors hold data, not room.
    pub sends: bool,
}

pub struct Placed {
    pub word: usize,
    pub held: Held,
}

/// Memory that the call uses.
pub enum Held {
    Nothing,
    Input(#[expect(dead_code, reason = "kept until the call is over")] Area),
    Room { area: Area, len: usize },
    Vec(PlacedVec),
    Msg { head: Area, msg: PlacedMsg },
    Msgs { heads: Area, msgs: Vec<PlacedMsg> },
    Value(Area),
    Len(Area),
    Int(Area),
    Offset(Area),
    Polls(Area),
    Set { area: Area, slots: Vec<(Slot, i32)> },
    Time { area: Area, before: (i64, i64) },
    Events(Area),
}

pub struct PlacedVec {
    table: Area,
    /// None: a part with a bad pointer.
    pub parts: Vec<Option<Area>>,
    _nowhere: Option<Area>,
}

pub struct PlacedMsg {
    pub vec: PlacedVec,
    _name: Option<Area>,
    _control: Option<Area>,
}

fn at(area: Area, held: impl FnOnce(Area) -> Held) -> Placed {
    Placed { word: area.at() as usize, held: held(area) }
}

fn number(n: i64) -> Placed {
    Placed { word: n as usize, held: Held::Nothing }
}

pub fn place(arg: &Arg, context: &Context) -> Placed {
    match arg {
        Arg::Fd(slot) => number(context.slots[*slot as usize].into()),
        Arg::Num(n) => number(*n),
        Arg::Null => number(0),
        Arg::Nowhere => at(Area::forbidden(libc::PROT_NONE), Held::Input),
        Arg::ReadOnly => at(Area::forbidden(libc::PROT_READ), Held::Input),
        Arg::Data { good, .. } => at(Area::of_all(&data::bytes(context.step, 0, *good as usize)), Held::Input),
        Arg::Room { len, good } => {
            let len = *len as usize;
            at(Area::filled(*good as usize, UNTOUCHED), |area| Held::Room { area, len })
        }
        Arg::Vec { parts } => {
            let vec = place_vec(parts, context, &mut 0);
            Placed { word: vec.table.at() as usize, held: Held::Vec(vec) }
        }
        Arg::Msg(msg) => {
            let (head, msg) = place_msg(msg, context, &mut 0);
            at(Area::of(head), |head| Held::Msg { head, msg })
        }
        Arg::Msgs(msgs) => place_msgs(msgs, context),
        Arg::Address { port, v6, .. } => at(address(*port, *v6), Held::Input),
        Arg::Bytes(bytes) => at(Area::of_all(bytes), Held::Input),
        Arg::Value { len } => at(Area::filled(*len as usize, UNTOUCHED), Held::Value),
        Arg::Len(n) => at(Area::of(*n), Held::Len),
        Arg::Int(n) => at(Area::of(*n), Held::Int),
        Arg::Offset(n) => at(Area::of(*n), Held::Offset),
        Arg::Polls(list) => {
            let list: Vec<pollfd> = list.iter().map(|&(watched, events)| want(watched, events, context)).collect();
            at(Area::of_all(&list), Held::Polls)
        }
        Arg::Set(slots) => set(slots, context),
        Arg::Timeval { sec, part } => {
            at(Area::of(timeval { tv_sec: *sec, tv_usec: *part }), |area| Held::Time { area, before: (*sec, *part) })
        }
        Arg::Timespec { sec, part } => {
            at(Area::of(timespec { tv_sec: *sec, tv_nsec: *part }), |area| Held::Time { area, before: (*sec, *part) })
        }
        Arg::Event { events, data } => at(Area::of(epoll_event { events: *events, u64: *data }), Held::Input),
        Arg::Events { room } => at(Area::filled(*room as usize * size_of::<epoll_event>(), UNTOUCHED), Held::Events),
        Arg::Signals(signals) => at(Area::of::<sigset_t>(sidestep_posix::sys::signal::set_of(signals)), Held::Input),
    }
}

fn want(watched: Watched, events: i16, context: &Context) -> pollfd {
    let fd = match watched {
        Watched::Slot(slot) => context.slots[slot as usize],
        Watched::Number(n) => n,
    };
    pollfd { fd, events, revents: 0x5555 }
}

fn place_vec(parts: &[Part], context: &Context, sent: &mut usize) -> PlacedVec {
    let nowhere = parts.iter().any(|p| p.bad).then(|| Area::forbidden(libc::PROT_NONE));
    let mut areas = vec![];
    let mut table = vec![];
    for part in parts {
        let len = part.len as usize;
        let area = (!part.bad).then(|| {
            let sent_before = std::mem::replace(sent, *sent + len);
            match context.sends {
                true => Area::of_all(&data::bytes(context.step, sent_before, len)),
                false => Area::filled(len, UNTOUCHED),
            }
        });
        let base = area.as_ref().or(nowhere.as_ref()).map_or(std::ptr::null_mut(), Area::at);
        table.push(iovec { iov_base: base.cast(), iov_len: part.claim.map_or(len, |n| n as usize) });
        areas.push(area);
    }
    PlacedVec { table: Area::of_all(&table), parts: areas, _nowhere: nowhere }
}

fn place_msg(msg: &Msg, context: &Context, sent: &mut usize) -> (msghdr, PlacedMsg) {
    let vec = place_vec(&msg.parts, context, sent);
    let room = |len: u32| (len > 0).then(|| Area::filled(len as usize, 0));
    let (name, control) = (room(msg.name), room(msg.control));
    let pointer = |area: &Option<Area>| area.as_ref().map_or(std::ptr::null_mut(), Area::at);
    // SAFETY: integers and pointers: all zero is a value.
    let mut head: msghdr = unsafe { std::mem::zeroed() };
    head.msg_iov = vec.table.at().cast();
    head.msg_iovlen = msg.parts.len();
    head.msg_name = pointer(&name).cast();
    head.msg_namelen = msg.name;
    head.msg_control = pointer(&control).cast();
    head.msg_controllen = msg.control as usize;
    // A call that receives writes the flags; a call that sends must ignore them.
    head.msg_flags = 0x5a5a;
    (head, PlacedMsg { vec, _name: name, _control: control })
}

fn place_msgs(msgs: &[Msg], context: &Context) -> Placed {
    let mut sent = 0;
    let placed: Vec<_> = msgs.iter().map(|msg| place_msg(msg, context, &mut sent)).collect();
    let heads: Vec<mmsghdr> = placed.iter().map(|(head, _)| mmsghdr { msg_hdr: *head, msg_len: 0x5a5a }).collect();
    let msgs = placed.into_iter().map(|(_, msg)| msg).collect();
    at(Area::of_all(&heads), |heads| Held::Msgs { heads, msgs })
}

/// The address of servers with this port.
pub fn address(port: u16, v6: bool) -> Area {
    let (four, six) = hosts::addresses(Side::Server);
    if v6 {
        // SAFETY: integers: all zero is a value.
        let mut addr: sockaddr_in6 = unsafe { std::mem::zeroed() };
        addr.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        addr.sin6_port = port.to_be();
        addr.sin6_addr.s6_addr = six.octets();
        return Area::of(addr);
    }
    // SAFETY: as above.
    let mut addr: sockaddr_in = unsafe { std::mem::zeroed() };
    addr.sin_family = libc::AF_INET as libc::sa_family_t;
    addr.sin_port = port.to_be();
    addr.sin_addr.s_addr = u32::from_ne_bytes(four.octets());
    Area::of(addr)
}

fn set(slots: &[Slot], context: &Context) -> Placed {
    let mut words = [0u64; SET_BYTES / 8];
    let mut members = vec![];
    for &slot in slots {
        let fd = context.slots[slot as usize];
        if (0..SET_BYTES as i32 * 8).contains(&fd) {
            words[fd as usize / 64] |= 1 << (fd % 64);
            members.push((slot, fd));
        }
    }
    at(Area::of(words), |area| Held::Set { area, slots: members })
}

pub fn is_set(area: &Area, fd: i32) -> bool {
    area.get::<u64>(fd as usize / 64) & 1 << (fd % 64) != 0
}
