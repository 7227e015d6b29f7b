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
            let rounds: u32 = args.get("rounds", 64)?;
            let every: f64 = args.get("every", 0.0)?;
            let every = Duration::try_from_secs_f64(every).map_err(|e| format!("--every: {e}"))?;
            args.finish()?;
            talk_then_idle(at, conns, rounds, every)
        }
    }
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

fn talk_then_idle(at: SocketAddrV4, conns: usize, rounds: u32, every: Duration) -> Result<(), String> {
    let mut epoll = Epoll::new(256)?;
    let mut streams = Vec::with_capacity(conns);
    for index in 0..conns {
        streams.push(watch(net::connect_to(at)?, &epoll, index)?);
    }
    for _ in 0..rounds {
        one_round(&mut streams, 0..conns, &mut epoll)?;
    }
    epoll.add(0, STDIN).map_err(|why| format!("standard input must be a pipe or a terminal: {why}"))?;
    if !every.is_zero() {
        talk_until_told(&mut streams, &mut epoll, every)?;
    }
    net::say("ready")?;
    while !epoll.wait()?.any(|key| key == STDIN) {}
    Ok(())
}

/// A message and its echo on each connection every so often, until a line comes on standard input. Most of the time the program waits:
/// a program that is always busy is late to enter its rings.
fn talk_until_told(streams: &mut [TcpStream], epoll: &mut Epoll, every: Duration) -> Result<(), String> {
    let size = streams.len().div_ceil(GROUPS).max(1);
    for from in (0..streams.len()).step_by(size).cycle() {
        if is_told(epoll, every / GROUPS as u32)? {
            break;
        }
        one_round(streams, from..(from + size).min(streams.len()), epoll)?;
    }
    io::stdin().read_line(&mut String::new()).map_err(|e| format!("standard input: {e}"))?;
    Ok(())
}

/// Whether something is on standard input by the end of the pause.
fn is_told(epoll: &mut Epoll, pause: Duration) -> Result<bool, String> {
    let end = Instant::now() + pause;
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
