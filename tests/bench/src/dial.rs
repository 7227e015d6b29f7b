//! Load on a Service: new connections, or requests on one that is kept, one after another.

use crate::args::Args;
use crate::client::{Targets, request, reset};
use crate::found::Found;
use crate::net;
use std::time::{Duration, Instant};

/// Connections or requests of one run, whatever the time: tables of connections are finite.
const MOST: u64 = 50_000;
/// Requests on a connection before any is timed.
const WARM_UP: usize = 20;

/// What is timed.
#[derive(Clone, Copy, PartialEq)]
enum Time {
    /// connect() alone; one request follows, and the end.
    Connect,
    /// A connection from its beginning to its end, with one request.
    Connection,
    /// A request and its answer, on a connection that is kept.
    Request,
}

pub fn run(args: &Args) -> Result<(), String> {
    let time = match args.required::<String>("time")?.as_str() {
        "connect" => Time::Connect,
        "connection" => Time::Connection,
        "request" => Time::Request,
        other => return Err(format!("--time: '{other}' is none of connect, connection, request")),
    };
    let mut targets = Targets::parse(&args.required::<String>("to")?)?;
    let limit = args.seconds()?;
    args.finish()?;
    let mut found = Found::default();
    let took = match time {
        Time::Request => keep(&mut found, limit, &mut targets)?,
        time => short(&mut found, limit, &mut targets, time)?,
    };
    net::say(&found.line(took))
}

fn short(found: &mut Found, limit: Duration, targets: &mut Targets, time: Time) -> Result<Duration, String> {
    let begin = Instant::now();
    while begin.elapsed() < limit && found.requests() < MOST {
        let target = targets.next();
        let start = Instant::now();
        let socket = net::tcp_socket()?;
        let before = Instant::now();
        let mut stream = net::connect(socket, target)?;
        let connected = before.elapsed();
        request(&mut stream)?;
        reset(stream)?;
        found.add(if time == Time::Connect { connected } else { start.elapsed() });
    }
    Ok(begin.elapsed())
}

fn keep(found: &mut Found, limit: Duration, targets: &mut Targets) -> Result<Duration, String> {
    let mut stream = net::connect(net::tcp_socket()?, targets.next())?;
    for _ in 0..WARM_UP {
        request(&mut stream)?;
    }
    let begin = Instant::now();
    while begin.elapsed() < limit && found.requests() < MOST {
        let start = Instant::now();
        request(&mut stream)?;
        found.add(start.elapsed());
    }
    let took = begin.elapsed();
    reset(stream)?;
    Ok(took)
}
