//! The result of a call, in words that are the same in every run.

use std::fmt::Write;

use libc::{epoll_event, mmsghdr, msghdr, pollfd};
use sidestep_posix::sys::errno::Errno;

use super::memory::Area;
use super::place::{Held, Placed, PlacedVec, UNTOUCHED, is_set};
use super::worker::Outcome;
use crate::calls::{self, Shape};
use crate::data;
use crate::program::{Arg, Call};
use crate::trace::Line;

/// Value of errno before each call: a call that succeeds must not change it.
pub const ERRNO_BEFORE: i32 = 7777;

/// Fills in the line of a call that has returned.
pub fn tell(call: &Call, placed: &[Placed], outcome: &Outcome, line: &mut Line) {
    line.text = match outcome.ret {
        -1 => format!("-1 {:?}", Errno(outcome.errno)),
        n if outcome.errno != ERRNO_BEFORE => format!("{n}, but errno became {:?}", Errno(outcome.errno)),
        n => n.to_string(),
    };
    let shape = calls::shape(&call.name);
    for (i, arg) in placed.iter().enumerate() {
        match &arg.held {
            Held::Room { area, len } if outcome.ret >= 0 => {
                received(line, &area.bytes(), (outcome.ret as usize).min(*len));
            }
            Held::Vec(vec) if shape == Shape::Receives && outcome.ret >= 0 => {
                received(line, &all(vec), outcome.ret as usize);
            }
            Held::Msg { head, msg } if shape == Shape::Receives && outcome.ret >= 0 => {
                header(line, &head.get::<msghdr>(0));
                received(line, &all(&msg.vec), outcome.ret as usize);
            }
            Held::Msgs { heads, msgs } if outcome.ret >= 0 => {
                for (i, msg) in msgs.iter().enumerate().take(outcome.ret as usize) {
                    let head = heads.get::<mmsghdr>(i);
                    let _ = write!(line.text, ", message of {}", head.msg_len);
                    if shape == Shape::Receives {
                        header(line, &head.msg_hdr);
                        received(line, &all(&msg.vec), head.msg_len as usize);
                    }
                }
            }
            Held::Value(area) => {
                if let (0.., Some(Held::Len(len))) = (outcome.ret, placed.get(i + 1).map(|p| &p.held)) {
                    value(line, call, &area.bytes(), len.get::<i32>(0));
                }
            }
            Held::Int(area) => drop(write!(line.text, ", int {}", area.get::<i32>(0))),
            Held::Offset(area) => drop(write!(line.text, ", offset {}", area.get::<i64>(0))),
            Held::Polls(area) => polls(line, area),
            Held::Set { area, slots } => {
                let left: Vec<_> = slots.iter().filter(|(_, fd)| is_set(area, *fd)).map(|(slot, _)| slot).collect();
                let _ = write!(line.text, ", set {left:?}");
            }
            Held::Time { area, before } => time(line, area, *before),
            Held::Events(area) => events(line, area, outcome.ret),
            _ => {}
        }
    }
}

fn all(vec: &PlacedVec) -> Vec<u8> {
    vec.parts.iter().flatten().flat_map(Area::bytes).collect()
}

fn received(line: &mut Line, room: &[u8], n: usize) {
    let n = n.min(room.len());
    let _ = write!(line.text, ", {}", data::show(&room[..n]));
    line.behind |= room[n..].iter().any(|&b| b != UNTOUCHED);
}

fn header(line: &mut Line, head: &msghdr) {
    let (flags, name, control) = (head.msg_flags, head.msg_namelen, head.msg_controllen);
    let _ = write!(line.text, ", flags {flags:#x}, name {name}, control {control}");
}

fn value(line: &mut Line, call: &Call, bytes: &[u8], len: i32) {
    let bytes = &bytes[..bytes.len().min(len.max(0) as usize)];
    let _ = match shape_of_value(call) {
        Value::Address => write!(line.text, ", length {len}, {}", address(bytes)),
        // The state is the kernel's own; its counters differ (LIMITATIONS: "Seen from outside").
        Value::TcpInfo => write!(line.text, ", length {len}, state {:?}", bytes.first()),
        Value::Option => write!(line.text, ", length {len}, {bytes:02x?}"),
    };
}

enum Value {
    Address,
    TcpInfo,
    Option,
}

fn shape_of_value(call: &Call) -> Value {
    match call.name.as_str() {
        "getsockopt" if call.args[1..3] == [Arg::Num(libc::IPPROTO_TCP.into()), Arg::Num(libc::TCP_INFO.into())] => {
            Value::TcpInfo
        }
        "getsockopt" => Value::Option,
        _ => Value::Address,
    }
}

/// The kernel chooses ports, so the coordinator numbers them as they appear.
fn address(bytes: &[u8]) -> String {
    if bytes.len() < 4 || bytes[0] == UNTOUCHED {
        return format!("{bytes:02x?}");
    }
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    format!("family {}, port<{port}>, {:02x?}", bytes[0], &bytes[4..])
}

fn polls(line: &mut Line, area: &Area) {
    let revents = (0..area.count::<pollfd>()).map(|i| format!("{:#x}", area.get::<pollfd>(i).revents));
    let _ = write!(line.text, ", revents [{}]", revents.collect::<Vec<_>>().join(" "));
}

/// The time that is left is not determined; whether some is left, is.
fn time(line: &mut Line, area: &Area, before: (i64, i64)) {
    let left = (area.get::<i64>(0), area.get::<i64>(1));
    let word = match left {
        _ if left == before => "as before",
        (0, 0) => "none",
        _ => "some",
    };
    let _ = write!(line.text, ", time left: {word}");
}

fn events(line: &mut Line, area: &Area, ret: i64) {
    let n = ret.clamp(0, area.count::<epoll_event>() as i64) as usize;
    for i in 0..n {
        let event = area.get::<epoll_event>(i);
        line.events.push((event.u64, event.events));
    }
    let bytes = area.bytes();
    line.behind |= bytes[n * size_of::<epoll_event>()..].iter().any(|&b| b != UNTOUCHED);
}
