//! A bad wire. It forwards frames between two devices of its network namespace, and does to some TCP segments what a bad network
//! does. The kernel's netem is a module that not every machine has.
//!
//! The handshake passes unharmed: its loss would cost each connection seconds, whoever carries it then. On SIGTERM the program
//! prints what it has done, as one line of JSON.

mod chance;
mod flows;
mod harm;
mod port;
mod way;

use clap::Parser;
use harm::Rates;
use port::Port;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use way::Way;

/// Rates are in segments of 10,000.
#[derive(Parser)]
struct Options {
    /// One device.
    left: String,
    /// The other one.
    right: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    rates: Rates,
}

static IS_OVER: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_: libc::c_int) {
    IS_OVER.store(true, Relaxed);
}

fn main() -> io::Result<()> {
    let Options { left, right, seed, rates } = Options::parse();
    // SAFETY: the handler only stores an atomic.
    unsafe { libc::signal(libc::SIGTERM, end as *const () as libc::sighandler_t) };
    let ports = [Port::open(&left)?, Port::open(&right)?];
    let mut ways = [Way::new(rates, seed), Way::new(rates, seed + 1)];
    println!("ready");
    while !IS_OVER.load(Relaxed) {
        for (number, way) in ways.iter_mut().enumerate() {
            way.forward(&ports[number], &ports[1 - number])?;
        }
        let next = ways.iter().filter_map(Way::next).min();
        port::wait(&ports, next.map(|at| at.saturating_duration_since(Instant::now())))?;
    }
    let mut done = ways[0].done;
    done.add(&ways[1].done);
    println!("{}", done.to_json());
    Ok(())
}

/// How long [`port::wait`] sleeps at most: a signal may come just before it.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
