//! `sidestep-stack`: carries connections to other hosts in user space.

mod check;

use clap::{Parser, ValueEnum};
use rustix::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sidestep_broker::client::{ClientError, Operator};
use sidestep_broker::listen::Address;
use sidestep_device::{Device, Options, Parts};
use sidestep_error::chain;
use sidestep_log::{Format, Line};
use sidestep_stack::choice::Choice;
use sidestep_stack::error;
use sidestep_stack::keeper::{self, Keeper, Signals};
use sidestep_stack::ledger::Ledger;
use sidestep_stack::passing;
use sidestep_stack::process::{GRACE, Process};
use sidestep_stack::readable::is_readable;
use sidestep_stack::standby::Standby;
use sidestep_stack::wait::Wait;
use sidestep_stack::worker::{Given, Settings, Worker};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Carry connections of programs under `sidestep run` to other hosts in user space
///
/// Established connections are taken from the kernel alive, and given back on the same descriptor when anything irregular
/// happens. Three processes: a worker does that, a keeper gives its connections back if the worker is killed, and a standby if both
/// are. SIGTERM gives all of them back; SIGHUP replaces the worker, whose program may be another release by then. Needs root, or
/// CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
#[derive(Parser)]
#[command(name = "sidestep-stack", version)]
struct Args {
    /// The devices by which the packets of the connections leave; may be given several times
    #[arg(long = "device", value_name = "DEV", num_args = 1.., required_unless_present_any = ["worker", "standby"])]
    devices: Vec<String>,
    /// What the worker does while nothing is to be done
    #[arg(long, value_enum, default_value_t)]
    wait: Wait,
    /// Bytes of a ring, a power of two: at least the window that the kernel announces
    #[arg(long, default_value_t = 1 << 20)]
    ring_size: u32,
    #[command(flatten)]
    choice: Choice,
    /// Leave a connection to the kernel whose messages are longer than this on the average, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 3000)]
    longest_message: u64,
    /// The processor that the worker runs on; by default any
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// The most connections at a time
    #[arg(long, default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    connections: u32,
    /// Address of the broker
    #[arg(long)]
    broker: Option<Address>,
    /// Say what the devices can do and what speaks against them, and end. The exit code is 0 if nothing speaks against any
    #[arg(long)]
    check: bool,
    /// With --check: print JSON
    #[arg(long, requires = "check")]
    json: bool,
    /// A file to make once the stack serves
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Say why connections are not taken, or given back
    #[arg(long)]
    verbose: bool,
    /// How the stack logs, on standard error
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,
    /// For tests: milliseconds until a connection that has gone back may be taken again, doubled at each further return
    #[arg(long, value_name = "MS", default_value_t = 500, hide = true)]
    pause: u64,
    /// The keeper starts its worker with this: a descriptor
    #[arg(long, hide = true)]
    worker: Option<RawFd>,
    /// The keeper starts its standby with this: a descriptor
    #[arg(long, hide = true)]
    standby: Option<RawFd>,
    /// For each device: how many descriptors the keeper passes
    #[arg(long, hide = true)]
    parts: Vec<usize>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot join the broker")]
    Client(#[from] ClientError),
    #[error("cannot open the device")]
    Device(#[from] sidestep_device::Error),
    #[error(transparent)]
    Stack(#[from] error::Error),
    #[error("--ready-file {path}: cannot make it")]
    Ready { path: PathBuf, source: std::io::Error },
    #[error("cannot handle signals")]
    Signals(#[from] std::io::Error),
    #[error("--cpu {0}: this process may not run there; `nproc --all` and `taskset -p $$` say where it may")]
    Cpu(usize),
    #[error("the keeper has not passed its descriptors")]
    NotPassed(#[source] std::io::Error),
}

fn main() -> ExitCode {
    let args = Args::parse();
    sidestep_log::init(args.log_format, Line::Named("sidestep-stack"), "info");
    let result = match (args.worker, args.standby) {
        (Some(socket), _) => work(&args, socket),
        (_, Some(socket)) => stand_by(&args, socket),
        _ if args.check => return check::check(&args.devices, args.json),
        _ => keep(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn keep(args: &Args) -> Result<(), Error> {
    if let Some(cpu) = args.cpu {
        // A worker that cannot run there would be replaced for ever.
        processor(cpu).ok_or(Error::Cpu(cpu))?;
    }
    let signals = Signals { ends: readable_after(&[SIGTERM, SIGINT])?, replaces: readable_after(&[SIGHUP])? };
    let program = keeper::WorkerCommand { path: std::env::current_exe()?, arguments: args.of_worker() };
    raise_descriptors();
    let address = args.broker.clone().unwrap_or_else(Address::of_this_user);
    let first = joined(&address)?;
    let devices = all_opened(&args.devices)?;
    let mut keeper = Keeper::new(devices, args.connections, signals, program)?;
    let mut first = Some(first);
    let mut waits_for_file = args.ready_file.as_ref();
    keeper.run(
        |ends| match first.take() {
            Some(socket) => Ok(Some(socket)),
            None => Ok(rejoined(&address, ends)),
        },
        || match waits_for_file.take() {
            Some(path) => std::fs::write(path, "").map_err(|source| Error::Ready { path: path.clone(), source }),
            None => Ok(()),
        },
    )
}

/// The devices of these names. One that has somebody else's XDP program is left out, unless it is the only one: its connections stay with
/// the kernel.
fn all_opened(names: &[String]) -> Result<Vec<Device>, Error> {
    let (mut devices, mut failed) = (Vec::new(), Vec::new());
    // It may be that of a stack that was killed, whose last process gives connections back for a while.
    let end = Instant::now() + if names.len() > 1 { GRACE + Duration::from_secs(1) } else { Duration::ZERO };
    for name in names {
        match opened_once_free(name, end) {
            Ok(device) => devices.push(device),
            Err(error @ sidestep_device::Error::ForeignProgram { .. }) => failed.push(error),
            Err(error) => return Err(error.into()),
        }
    }
    without(failed, devices)
}

/// Waits until there is no other program there, at most until `end`.
fn opened_once_free(name: &str, end: Instant) -> Result<Device, sidestep_device::Error> {
    loop {
        match opened(name) {
            Err(sidestep_device::Error::ForeignProgram { .. }) if Instant::now() < end => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

/// The devices, without those that have failed. At least one must be left.
fn without(failed: Vec<sidestep_device::Error>, devices: Vec<Device>) -> Result<Vec<Device>, Error> {
    if devices.is_empty() {
        let nothing = || Error::NotPassed(std::io::ErrorKind::InvalidData.into());
        return Err(failed.into_iter().next().map_or_else(nothing, Error::Device));
    }
    for error in &failed {
        tracing::warn!("goes on without a device: {}", chain(error));
    }
    Ok(devices)
}

fn opened(name: &str) -> Result<Device, sidestep_device::Error> {
    let device = Device::open(name, &Options::default())?;
    if let Some(error) = &device.hindrance {
        let what = "uses generic XDP, which makes other connections slower";
        tracing::warn!("{name}: {what}: {}", chain(error));
    }
    Ok(device)
}

/// A socket that becomes readable after one of these signals.
fn readable_after(signals: &[i32]) -> std::io::Result<UnixStream> {
    let (socket, writing) = UnixStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, writing.try_clone()?)?;
    }
    Ok(socket)
}

impl Args {
    /// The arguments that the worker needs, too.
    fn of_worker(&self) -> Vec<String> {
        let wait = self.wait.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let mut arguments = vec!["--wait".into(), wait, "--ring-size".into(), self.ring_size.to_string()];
        arguments.extend(["--longest-message".into(), self.longest_message.to_string()]);
        arguments.extend(["--pause".into(), self.pause.to_string()]);
        arguments.extend(self.choice.arguments());
        arguments.extend(["--log-format".into(), self.log_format.to_string()]);
        arguments.extend(self.cpu.iter().flat_map(|cpu| ["--cpu".into(), cpu.to_string()]));
        arguments.extend(self.verbose.then(|| "--verbose".into()));
        arguments
    }
}

/// A connection takes a descriptor in each of the three processes.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // What fails here leaves fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Connects to the broker, which may be about to start.
fn joined(address: &Address) -> Result<OwnedFd, ClientError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match Operator::connect(address) {
            Err(ClientError::NotRunning(_) | ClientError::NoOperator { .. }) if Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            connected => return connected.map(Operator::into_socket),
        }
    }
}

/// Connects again to the broker, which may have ended, for as long as it takes. None: this process is to end.
fn rejoined(address: &Address, ends: &UnixStream) -> Option<OwnedFd> {
    let mut has_said = false;
    loop {
        match Operator::connect(address) {
            Ok(operator) => return Some(operator.into_socket()),
            Err(error) if !has_said => {
                tracing::warn!("waits for the broker: {}", chain(&error));
                has_said = true;
            }
            Err(_) => {}
        }
        if is_readable(ends, SECOND) {
            return None;
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

/// What the keeper passes to a worker or a standby.
struct Passed<const N: usize> {
    /// The socket to the keeper.
    keeper: OwnedFd,
    first: [OwnedFd; N],
    /// The descriptors of each device.
    devices: Vec<Vec<OwnedFd>>,
}

fn passed<const N: usize>(args: &Args, socket: RawFd) -> Result<Passed<N>, Error> {
    // The keeper says when this process is to end. A terminal sends these to all.
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Default::default())?;
    }
    // SAFETY: the keeper has opened it for this process, and nothing else here knows it.
    let keeper = unsafe { OwnedFd::from_raw_fd(socket) };
    rustix::io::fcntl_setfd(&keeper, rustix::io::FdFlags::CLOEXEC).map_err(not_passed)?;
    let mut first = passing::receive(keeper.as_fd()).map_err(not_passed)?;
    let mut rest = first.split_off(N.min(first.len()));
    let first = first.try_into().map_err(|_| not_passed(Errno::INVAL))?;
    let devices = args.parts.iter().map(|count| {
        let others = rest.split_off((*count).min(rest.len()));
        std::mem::replace(&mut rest, others)
    });
    Ok(Passed { keeper, first, devices: devices.collect() })
}

fn not_passed(error: Errno) -> Error {
    Error::NotPassed(error.into())
}

/// The set of this processor alone. None: this process may not run there.
fn processor(cpu: usize) -> Option<CpuSet> {
    let may_run = cpu < CpuSet::MAX_CPU && sched_getaffinity(None).is_ok_and(|all| all.is_set(cpu));
    may_run.then(|| {
        let mut only = CpuSet::new();
        only.set(cpu);
        only
    })
}

fn stand_by(args: &Args, socket: RawFd) -> Result<(), Error> {
    let Passed { keeper, first: [broker, ledger, worker, keeper_process, worker_process], devices } =
        passed(args, socket)?;
    let devices = devices.into_iter().map(Parts::from_descriptors).collect::<Result<_, _>>()?;
    let ledger = Ledger::open(ledger).map_err(not_passed)?;
    let [keeper_process, worker_process] = [keeper_process, worker_process].map(Process::new);
    Ok(Standby { keeper, worker, keeper_process, worker_process, ledger, devices, broker }.run()?)
}

fn work(args: &Args, socket: RawFd) -> Result<(), Error> {
    let Passed { keeper, first: [broker, ledger, standby, process], devices } = passed(args, socket)?;
    let devices = adopted(devices)?;
    let ledger = Ledger::open(ledger).map_err(not_passed)?;
    let processors = sched_getaffinity(None).ok();
    let keeper_process = Process::new(process);
    let given = Given { devices, broker, ledger, keeper, keeper_process, standby, processors };
    if let Some(cpu) = args.cpu {
        let only = processor(cpu).ok_or(Error::Cpu(cpu))?;
        sched_setaffinity(None, &only).map_err(|_| Error::Cpu(cpu))?;
    }
    let Args { ring_size, wait, longest_message, verbose, .. } = *args;
    let (choice, pause) = (args.choice.clone(), args.pause * 1000);
    let settings = Settings { ring_size, wait, choice, longest_message, pause, verbose };
    let mut worker = Worker::new(given, settings)?;
    let code = match worker.run() {
        Ok(totals) => {
            println!("taken {}, given back {}, not taken {}", totals.taken, totals.returned, totals.declined);
            0
        }
        Err(error) => {
            tracing::error!("{}", chain(&error));
            1
        }
    };
    // Now that all is said: the keeper ends this process. Sockets are closed by its end, which no program delays.
    worker.leave();
    std::process::exit(code)
}

/// The devices that the keeper has passed. One that was removed is left out, unless it is the only one.
fn adopted(passed: Vec<Vec<OwnedFd>>) -> Result<Vec<Device>, Error> {
    let (mut devices, mut failed) = (Vec::new(), Vec::new());
    for descriptors in passed {
        match Device::from_parts(Parts::from_descriptors(descriptors)?) {
            Ok(device) => devices.push(device),
            Err(error) => failed.push(error),
        }
    }
    without(failed, devices)
}
