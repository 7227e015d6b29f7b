//! Many connections that have talked and now sit still.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::args::{Args, Role};
use crate::epoll::Epoll;
use crate::net;

const MESSAGE: usize = 64;
/// The key of the client's standard input in its epoll set; connections have their index.
const STDIN: u64 = u64::MAX;
/// Descriptors beside the connections: standard ones, listener, epoll, and what a library may add.
const SPARE: u64 = 64;
/// Groups of connections that exchange their messages one after the other.
const GROUPS: usize = 100;

pub fn run(args: &Args) -> Result<(), String> {
    let role = args.role()?;
    let conns: usize = args.get("conns", 10_000)?;
    let at = SocketAddrV4::new(args.get("host", Ipv4Addr::LOCALHOST)?, args.required("port")?);
    raise_fd_limit(conns as u64 + SPARE)?;
    match role {
        Role::Server => {
            args.finish()?;
            serve(at, conns)
        }
        Role::Client => {
            let (begin, every) = (seconds(args, "begin")?, seconds(args, "every")?);
            let talk = Talk { rounds: args.get("rounds", 64)?, begin, every };
            args.finish()?;
            talk_then_idle(at, conns, &talk)
        }
    }
}

/// How a client uses its connections before they are idle.
struct Talk {
    /// Messages with which each connection begins.
    rounds: u32,
    /// For how long connections begin, one group after the other; zero: all begin at once.
    begin: Duration,
    /// How often there is one more message on each, until a line comes on standard input; zero: never.
    every: Duration,
}

fn seconds(args: &Args, name: &'static str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(args.get(name, 0.0)?).map_err(|e| format!("--{name}: {e}"))
}

/// Echoes on all connections until the last one is closed.
fn serve(at: SocketAddrV4, conns: usize) -> Result<(), String> {
    let listener = net::listen(at)?;
    let mut epoll = Epoll::new(256)?;
    let mut streams = Vec::with_capacity(conns);
    for index in 0..conns {
        streams.push(Some(watch(net::accept(&listener)?, &epoll, index)?));
    }
    let mut open = conns;
    let mut ready = Vec::new();
    let mut buffer = [0u8; MESSAGE];
    while open > 0 {
        ready.clear();
        ready.extend(epoll.wait()?);
        for index in &ready {
            let slot = &mut streams[*index as usize];
            let Some(stream) = slot else { continue };
            match stream.read(&mut buffer) {
                Ok(0) => {
                    *slot = None;
                    open -= 1;
                }
                Ok(count) => stream.write_all(&buffer[..count]).map_err(|e| format!("write: {e}"))?,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(format!("read: {e}")),
            }
        }
    }
    Ok(())
}

fn talk_then_idle(at: SocketAddrV4, conns: usize, talk: &Talk) -> Result<(), String> {
    let mut epoll = Epoll::new(256)?;
    let mut streams = Vec::with_capacity(conns);
    for index in 0..conns {
        streams.push(watch(net::connect_to(at)?, &epoll, index)?);
    }
    if talk.begin.is_zero() {
        begin(&mut streams, 0..conns, talk.rounds, &mut epoll)?;
    } else {
        for group in groups(conns) {
            begin(&mut streams, group, talk.rounds, &mut epoll)?;
            pause(&mut epoll, talk.begin / GROUPS as u32)?;
        }
    }
    epoll.add(0, STDIN).map_err(|why| format!("standard input must be a pipe or a terminal: {why}"))?;
    if !talk.every.is_zero() {
        talk_until_told(&mut streams, &mut epoll, talk.every)?;
    }
    net::say("ready")?;
    while !epoll.wait()?.any(|key| key == STDIN) {}
    Ok(())
}

/// The messages with which these connections begin.
fn begin(streams: &mut [TcpStream], these: Range<usize>, rounds: u32, epoll: &mut Epoll) -> Result<(), String> {
    (0..rounds).try_for_each(|_| one_round(streams, these.clone(), epoll))
}

/// All connections, in groups of the same size.
fn groups(conns: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let size = conns.div_ceil(GROUPS).max(1);
    (0..conns).step_by(size).map(move |from| from..(from + size).min(conns))
}

/// A message and its echo on each connection every so often, until a line comes on standard input. Most of the time the program waits:
/// a program that is always busy is late to enter its rings.
fn talk_until_told(streams: &mut [TcpStream], epoll: &mut Epoll, every: Duration) -> Result<(), String> {
    for group in groups(streams.len()).cycle() {
        if pause(epoll, every / GROUPS as u32)? {
            break;
        }
        one_round(streams, group, epoll)?;
    }
    io::stdin().read_line(&mut String::new()).map_err(|e| format!("standard input: {e}"))?;
    Ok(())
}

/// Waits where the library hears of news. Ends early, and returns true, if something is on standard input, once that is in the set.
fn pause(epoll: &mut Epoll, time: Duration) -> Result<bool, String> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if epoll.wait_for(Some(left))?.any(|key| key == STDIN) {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

/// One message and its echo on each of these connections, all at once.
fn one_round(streams: &mut [TcpStream], these: Range<usize>, epoll: &mut Epoll) -> Result<(), String> {
    let mut missing = these.len() * MESSAGE;
    for stream in &mut streams[these] {
        stream.write_all(&[0x42; MESSAGE]).map_err(|e| format!("write: {e}"))?;
    }
    let mut buffer = [0u8; MESSAGE];
    let mut ready = Vec::new();
    while missing > 0 {
        ready.clear();
        ready.extend(epoll.wait()?);
        for index in ready.iter().filter(|key| **key != STDIN) {
            match streams[*index as usize].read(&mut buffer) {
                Ok(0) => return Err("the server closed a connection".into()),
                Ok(count) => missing -= count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(format!("read: {e}")),
            }
        }
    }
    Ok(())
}

fn watch(stream: TcpStream, epoll: &Epoll, index: usize) -> Result<TcpStream, String> {
    stream.set_nonblocking(true).map_err(|e| format!("O_NONBLOCK: {e}"))?;
    epoll.add(stream.as_raw_fd(), index as u64)?;
    Ok(stream)
}

fn raise_fd_limit(wanted: u64) -> Result<(), String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours and whole.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(net::last("getrlimit"));
    }
    if limit.rlim_cur >= wanted {
        return Ok(());
    }
    if limit.rlim_max < wanted {
        return Err(format!(
            "needs {wanted} descriptors, the hard limit is {}; raise it (ulimit -Hn {wanted}) or lower --conns",
            limit.rlim_max
        ));
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel only reads `limit`.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(net::last("setrlimit"));
    }
    Ok(())
}
