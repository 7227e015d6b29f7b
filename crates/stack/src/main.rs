//! `sidestep-stack`: carries connections to other hosts in user space.

use clap::Parser;
use rustix::fd::OwnedFd;
use sidestep_broker::client::{ClientError, Operator};
use sidestep_broker::listen::Address;
use sidestep_device::{Device, Options};
use sidestep_error::chain;
use sidestep_stack::error;
use sidestep_stack::wait::Wait;
use sidestep_stack::worker::Worker;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Carry connections of programs under `sidestep run` to other hosts in user space
///
/// Established connections are taken from the kernel alive, and given back on the same descriptor when anything irregular
/// happens. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
#[derive(Parser)]
#[command(name = "sidestep-stack", version)]
struct Args {
    /// The device by which the packets of the connections leave
    #[arg(long)]
    device: String,
    /// What the worker does while nothing is to be done
    #[arg(long, value_enum, default_value_t)]
    wait: Wait,
    /// Bytes of a ring, a power of two: at least the window that the kernel announces
    #[arg(long, default_value_t = 1 << 20)]
    ring_size: u32,
    /// Address of the broker
    #[arg(long)]
    broker: Option<Address>,
    /// A file to make once the stack serves
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Say why connections are not taken, or given back
    #[arg(long)]
    verbose: bool,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot join the broker")]
    Client(#[from] ClientError),
    #[error("cannot open the device")]
    Device(#[from] sidestep_device::Error),
    #[error(transparent)]
    Worker(#[from] error::Error),
    #[error("--ready-file {path}: cannot make it")]
    Ready { path: PathBuf, source: std::io::Error },
    #[error("cannot handle signals")]
    Signals(#[from] std::io::Error),
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep-stack: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Connects to the broker, which may be about to start.
fn joined(address: &Address) -> Result<Operator, ClientError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match Operator::connect(address) {
            Err(ClientError::NotRunning(_) | ClientError::NoOperator { .. }) if Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            connected => return connected,
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

fn run(args: &Args) -> Result<(), Error> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, ends.clone())?;
    }
    let address = args.broker.clone().unwrap_or_else(Address::of_this_user);
    let broker: OwnedFd = joined(&address)?.into_socket();
    let device = Device::open(&args.device, &Options::default())?;
    let mut worker = Worker::new(device, broker, args.ring_size, args.wait, args.verbose)?;
    if let Some(path) = &args.ready_file {
        std::fs::write(path, "").map_err(|source| Error::Ready { path: path.clone(), source })?;
    }
    let totals = worker.run(&ends)?;
    println!("taken {}, given back {}, not taken {}", totals.taken, totals.returned, totals.declined);
    Ok(())
}
