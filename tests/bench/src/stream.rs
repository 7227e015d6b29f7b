//! A one-way stream: the client writes, the server reads and measures.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::args::{Args, Role};
use crate::{clock, net};

/// Room for one read().
const READ: usize = 128 << 10;

pub fn run(args: &Args) -> Result<(), String> {
    match args.role()? {
        Role::Server => {
            args.finish()?;
            let listener = net::listen(0)?;
            net::announce(&listener)?;
            read_all(net::accept(&listener)?)
        }
        Role::Client => {
            let length = args.seconds()? + clock::WARM_UP;
            let write: usize = args.get("write", 128 << 10)?;
            let rate: u64 = args.get("rate", 0)?;
            let stream = net::connect(args, 0)?;
            args.finish()?;
            write_for(stream, length, write, rate)
        }
    }
}

/// Counts from the end of the warm-up to the end of the stream.
fn read_all(mut stream: TcpStream) -> Result<(), String> {
    let mut buffer = vec![0u8; READ];
    let (mut total, mut before) = (0u64, 0u64);
    let begin = Instant::now();
    let mut start = None;
    loop {
        let count = stream.read(&mut buffer).map_err(|e| format!("read: {e}"))?;
        if count == 0 {
            break;
        }
        total += count as u64;
        if start.is_none() && begin.elapsed() >= clock::WARM_UP {
            start = Some(Instant::now());
            before = total;
        }
    }
    let seconds = start.ok_or("the stream ended within the warm-up")?.elapsed().as_secs_f64();
    let speed = (total - before) as f64 / seconds / 1e9;
    net::say(&format!("{{\"total\":{total},\"seconds\":{seconds:.6},\"gb_per_s\":{speed:.6}}}"))
}

fn write_for(mut stream: TcpStream, length: Duration, write: usize, rate: u64) -> Result<(), String> {
    let block = vec![0x5au8; write];
    let start = Instant::now();
    let mut total = 0u64;
    while start.elapsed() < length {
        stream.write_all(&block).map_err(|e| format!("write: {e}"))?;
        total += write as u64;
        if rate > 0 {
            let due = Duration::from_secs_f64(total as f64 / rate as f64);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
    }
    stream.shutdown(Shutdown::Write).map_err(|e| format!("shutdown: {e}"))?;
    net::say(&format!("{{\"total\":{total}}}"))
}
