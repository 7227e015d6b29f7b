//! Prints steps as strace(1) would.

use std::fmt;

use crate::program::{Act, Arg, Call, Msg, Part, Step, Watched};

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.at, self.act)
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Call(call) => write!(f, "{call}"),
            Act::Pair { a, b, v6, warm } => {
                let (v6, warm) = (if *v6 { " over IPv6" } else { "" }, if *warm { ", warmed up" } else { "" });
                write!(f, "connect s{a} of side 0 with s{b} of side 1{v6}{warm}")
            }
            Act::Listen { slot, name, .. } => write!(f, "s{slot} listens as #{name}"),
            Act::Make { slot, kind } => write!(f, "s{slot} = {kind:?}"),
            Act::Close { slot } => write!(f, "close(s{slot})"),
            Act::Signal { signal } => write!(f, "signal {signal} for who waits longest"),
            Act::Handler { signal, how } => write!(f, "signal {signal}: {how:?}"),
            Act::Fork { child } => write!(f, "fork() = actor {child}"),
            Act::Exit { code } => write!(f, "_exit({code})"),
            Act::Fill { slot } => write!(f, "fill s{slot}"),
            Act::Drain { slot } => write!(f, "drain s{slot}"),
            Act::Operator { detach: true } => f.write_str("sidestep detach --all"),
            Act::Operator { detach: false } => f.write_str("sidestep attach --all"),
            Act::Nap { ms } => write!(f, "nap {ms} ms"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(slot) = self.into {
            write!(f, "s{slot} = ")?;
        }
        write!(f, "{}{}(", if self.raw { "syscall:" } else { "" }, self.name)?;
        for (i, arg) in self.args.iter().enumerate() {
            write!(f, "{}{arg}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Fd(slot) => write!(f, "s{slot}"),
            Arg::Num(n) if n.unsigned_abs() > 0xffff => write!(f, "{n:#x}"),
            Arg::Num(n) => write!(f, "{n}"),
            Arg::Null => f.write_str("NULL"),
            Arg::Nowhere => f.write_str("bad pointer"),
            Arg::ReadOnly => f.write_str("read-only page"),
            Arg::Data { len, good } if len == good => write!(f, "data[{len}]"),
            Arg::Data { len, good } => write!(f, "data[{len}, but {good} readable]"),
            Arg::Room { len, good } if len == good => write!(f, "room[{len}]"),
            Arg::Room { len, good } => write!(f, "room[{len}, but {good} writable]"),
            Arg::Vec { parts } => show_parts(f, parts),
            Arg::Msg(msg) => write!(f, "{msg}"),
            Arg::Msgs(msgs) => msgs.iter().try_for_each(|m| write!(f, "{m}")),
            Arg::Address { name, .. } => write!(f, "address #{name}"),
            Arg::Bytes(bytes) => write!(f, "bytes{bytes:x?}"),
            Arg::Value { len } => write!(f, "value[{len}]"),
            Arg::Len(n) => write!(f, "&len={n}"),
            Arg::Int(n) => write!(f, "&int={n}"),
            Arg::Offset(n) => write!(f, "&offset={n}"),
            Arg::Polls(list) => {
                f.write_str("[")?;
                for (i, (watched, events)) in list.iter().enumerate() {
                    write!(f, "{}{watched}:{events:#x}", if i > 0 { " " } else { "" })?;
                }
                f.write_str("]")
            }
            Arg::Set(slots) => write!(f, "set{slots:?}"),
            Arg::Timeval { sec, part } => write!(f, "{{{sec} s, {part} us}}"),
            Arg::Timespec { sec, part } => write!(f, "{{{sec} s, {part} ns}}"),
            Arg::Event { events, data } => write!(f, "{{{events:#x}, data {data:#x}}}"),
            Arg::Events { room } => write!(f, "events[{room}]"),
            Arg::Signals(signals) => write!(f, "signals{signals:?}"),
        }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Watched::Slot(slot) => write!(f, "s{slot}"),
            Watched::Number(n) => write!(f, "{n}"),
        }
    }
}

impl fmt::Display for Msg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        show_parts(f, &self.parts)?;
        write!(f, ", name {}, control {}}}", self.name, self.control)
    }
}

fn show_parts(f: &mut fmt::Formatter<'_>, parts: &[Part]) -> fmt::Result {
    f.write_str("iov[")?;
    for (i, part) in parts.iter().enumerate() {
        let bad = if part.bad { "!" } else { "" };
        write!(f, "{}{bad}{}", if i > 0 { " " } else { "" }, part.claim.unwrap_or(part.len.into()))?;
    }
    f.write_str("]")
}
