//! Wrong arguments: replaces one argument of a call by a value that no correct program passes.

use sidestep_posix::rng::Rng;

use crate::program::{Arg, Call, Part};

/// Whether glibc itself reads this argument, and would crash on a bad pointer.
fn libc_looks(name: &str, arg: &Arg) -> bool {
    let waits = ["ppoll", "__ppoll_chk", "select", "__select", "pselect", "epoll_pwait2", "epoll_pwait"];
    matches!(arg, Arg::Timeval { .. } | Arg::Timespec { .. } | Arg::Signals(_)) && waits.contains(&name)
}

/// Whether the function checks the length of memory: glibc ends the program for a wrong one.
fn is_checked(name: &str) -> bool {
    name.ends_with("_chk")
}

/// `waits`: the call may wait for ever.
pub fn spoil(rng: &mut Rng, call: &mut Call, waits: bool) {
    let i = rng.below(call.args.len() as u64) as usize;
    if libc_looks(&call.name, &call.args[i]) || is_checked(&call.name) {
        return;
    }
    // These could close or replace descriptors that the harness needs.
    let careful = ["dup2", "__dup2", "dup3", "close_range", "close", "__close"].contains(&call.name.as_str());
    let fd = i == 0 || careful;
    match &mut call.args[i] {
        // A range up to any wrong number has the harness's in it.
        arg @ Arg::Fd(_) if call.name == "close_range" => *arg = Arg::Num(if i == 0 { 99_998 } else { 0 }),
        arg @ Arg::Fd(_) => *arg = Arg::Num(*rng.pick(&[-1, -100, 99_998, i64::from(i32::MAX)])),
        Arg::Num(_) if fd => {}
        Arg::Num(n) => {
            let is_timeout =
                matches!((call.name.as_str(), i), ("poll" | "__poll", 2) | ("epoll_wait" | "epoll_pwait", 3));
            if !is_timeout || waits {
                *n = number(rng, call.name.as_str(), i);
                call.wait_ms = call.wait_ms.filter(|_| !is_timeout);
            }
        }
        // As for room: the test aid of flips cuts a send, so a good part of the data might suffice.
        Arg::Data { good, .. } => *good = 0,
        // The kernel fills a good part of the room with whole segments (LIMITATIONS: "only a part of which may be written").
        Arg::Room { good, .. } => *good = 0,
        Arg::Vec { parts } => spoil_parts(rng, parts),
        Arg::Msg(msg) => spoil_parts(rng, &mut msg.parts),
        Arg::Msgs(msgs) => spoil_parts(rng, &mut msgs[0].parts),
        Arg::Len(n) => *n = *rng.pick(&[0, 1, 3, -1, i32::MIN]),
        arg => *arg = rng.pick(&[Arg::Null, Arg::Nowhere, Arg::ReadOnly]).clone(),
    }
}

fn number(rng: &mut Rng, name: &str, i: usize) -> i64 {
    // A wait may become endless, but not long: a long one would return at any step.
    let wait = name.contains("poll") || name.contains("select");
    // A length must not become one that a part of the memory has: that part might suffice.
    let moves_bytes = crate::calls::shape(name) != crate::calls::Shape::Other;
    let wrong: &[i64] = match i {
        2 if moves_bytes => &[0],
        _ if wait || i >= 3 => &[0, -1, i32::MIN as i64],
        _ => &[0, -1, i32::MIN as i64, i32::MAX as i64, i64::MIN],
    };
    *rng.pick(wrong)
}

fn spoil_parts(rng: &mut Rng, parts: &mut [Part]) {
    let i = rng.below(parts.len() as u64) as usize;
    match rng.below(3) {
        0 => parts[i].claim = Some(*rng.pick(&[-1, i64::MIN])),
        _ => parts.iter_mut().for_each(|part| part.bad = true),
    }
}
