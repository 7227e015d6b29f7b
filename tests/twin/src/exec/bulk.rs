//! Filling a connection until nothing fits, and reading until nothing comes.
//!
//! The number of bytes that fit is not compared: a ring has another size than the kernel's buffers (LIMITATIONS:
//! "Back-pressure"). It is compared that the connection is full then, and that exactly the sent bytes are received.

use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL};
use sidestep_posix::sys::errno::{EAGAIN, EINTR};
use sidestep_posix::sys::io;

use crate::data;

/// Nothing fits if nothing has fitted for this long. That is longer than a stalled ring waits, and than the kernel delays an
/// acknowledgement.
const FULL_MS: u128 = 120;
/// Nothing comes if nothing has come for this long; longer if bytes are known to be due.
const EMPTY_MS: u128 = 30;
const MISSING_MS: u128 = 2500;
const CHUNK: usize = 16 * 1024;

/// Fills the connection. Returns what happened, and the number of bytes.
pub fn fill(fd: i32) -> (String, i64) {
    let (mut sent, mut last) = (0, Instant::now());
    while last.elapsed().as_millis() < FULL_MS {
        let chunk = if last.elapsed().as_millis() < 30 { CHUNK } else { 1 };
        match io::send(fd, &data::fill(sent, chunk), MSG_DONTWAIT | MSG_NOSIGNAL) {
            Ok(n) => {
                sent += n;
                last = Instant::now();
            }
            Err(EAGAIN) => std::thread::sleep(Duration::from_millis(2)),
            Err(EINTR) => {}
            Err(e) => return (format!("{e:?} {}", if sent > 0 { "after some" } else { "at once" }), 0),
        }
    }
    (if sent > 0 { "full" } else { "was full" }.into(), sent as i64)
}

/// Drains the connection. Returns what came, and the length of the fill that was completed, or 0.
pub fn drain(fd: i32, fills: &[usize]) -> (String, i64) {
    let (mut got, mut last) = (vec![], Instant::now());
    let mut buf = vec![0; CHUNK];
    let mut done = fills.is_empty();
    let end = loop {
        match io::recv(fd, &mut buf, MSG_DONTWAIT) {
            Ok(0) => break "end of stream".into(),
            Ok(n) => {
                got.extend_from_slice(&buf[..n]);
                last = Instant::now();
            }
            Err(EAGAIN) => {
                done = done || ends(&got).is_some_and(|end| fills.contains(&end));
                if last.elapsed().as_millis() > if done { EMPTY_MS } else { MISSING_MS } {
                    break "EAGAIN".into();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(EINTR) => {}
            Err(e) => break format!("{e:?}"),
        }
    };
    describe(&got, fills, &end)
}

fn ends(got: &[u8]) -> Option<usize> {
    data::split(got).ok()?.1.map(|range| range.end)
}

fn describe(got: &[u8], fills: &[usize], end: &str) -> (String, i64) {
    match data::split(got) {
        Err(what) => (format!("{what}, then {end}"), 0),
        Ok((ordinary, None)) => (format!("{}, then {end}", data::show(&ordinary)), 0),
        Ok((ordinary, Some(range))) if fills.contains(&range.end) => {
            (format!("{} and a fill to its end, then {end}", data::show(&ordinary)), range.end as i64)
        }
        Ok((ordinary, Some(range))) => {
            let bytes = data::show(&ordinary);
            (format!("{bytes} and a fill up to {}, of {fills:?}, then {end}", range.end), 0)
        }
    }
}
