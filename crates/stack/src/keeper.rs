//! The keeper: starts the worker, and holds what the worker's connections need to survive it. It looks at no packet and decides
//! nothing. When the worker ends, in whatever way, it gives every connection back to the kernel, and starts another worker.

use crate::error::{Error, failed};
use crate::frames::inject;
use crate::held::Held;
use crate::ledger::Ledger;
use crate::passing;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::{self, FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use sidestep_broker::wire::{self, Incoming};
use sidestep_device::{Device, Parts, Tuple, wait_for_programs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a worker may take to give everything back once it is to end.
const GRACE: Duration = Duration::from_secs(10);
/// A worker that has served for less than this is not replaced at once.
const STEADY: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// The keeper of some devices.
pub struct Keeper {
    devices: Vec<Parts>,
    ledger: Rc<Ledger>,
    signals: Signals,
    program: Worker,
}

/// What people may want of the keeper.
pub struct Signals {
    /// Readable once this process is to end.
    pub ends: UnixStream,
    /// Readable when another worker is to take the place of this one.
    pub replaces: UnixStream,
}

/// How a worker is started.
pub struct Worker {
    /// The program. The file may be another one by the time that the next worker starts.
    pub path: PathBuf,
    /// Its arguments, besides [`WORKER`].
    pub arguments: Vec<String>,
}

/// Why a worker is no longer heard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    WorkerEnded,
    Ends,
    Replaces,
}

/// A worker that runs.
struct Running {
    child: Child,
    socket: OwnedFd,
    held: Held,
    /// The broker does not hear that the worker has ended before the keeper has given the connections back.
    _broker: OwnedFd,
}

impl Keeper {
    /// `records`: the most connections at a time.
    pub fn new(devices: Vec<Device>, records: u32, signals: Signals, program: Worker) -> Result<Keeper, Error> {
        let ledger = Rc::new(Ledger::create(records).map_err(failed("make the ledger"))?);
        let devices = devices.into_iter().map(Device::into_parts).collect::<Result<_, _>>()?;
        Ok(Keeper { devices, ledger, signals, program })
    }

    /// Serves until this process is to end. `join` connects to the broker, and waits for it if need be; `ready` is called when the
    /// first worker runs.
    pub fn run<E: From<Error>>(
        &mut self,
        mut join: impl FnMut(&UnixStream) -> Result<Option<OwnedFd>, E>,
        mut ready: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(broker) = join(&self.signals.ends)? {
            let began = Instant::now();
            let mut running = self.start(broker)?;
            ready()?;
            let over = self.serve(&mut running)?;
            let status = self.end(running, over != Over::WorkerEnded)?;
            match over {
                Over::Ends => return Ok(()),
                Over::Replaces => {
                    eprintln!("sidestep-stack: the worker has given everything back; another one is started")
                }
                Over::WorkerEnded => {
                    eprintln!("sidestep-stack: the worker has ended ({status}); another one is started");
                    if began.elapsed() < STEADY && is_readable(&self.signals.ends, PAUSE) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&self, broker: OwnedFd) -> Result<Running, Error> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, of_worker) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed("make a socket"))?;
        fcntl_setfd(&of_worker, FdFlags::empty()).map_err(failed("pass a socket"))?;
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.arguments).arg(WORKER).arg(of_worker.as_raw_fd().to_string());
        // How many descriptors belong to each device.
        for parts in &self.devices {
            command.arg(PARTS).arg(parts.descriptors().len().to_string());
        }
        let child = command.spawn().map_err(Error::Spawn)?;
        let mut all = vec![broker.as_fd(), self.ledger.file()];
        all.extend(self.devices.iter().flat_map(Parts::descriptors));
        passing::send(socket.as_fd(), &all).map_err(failed("pass descriptors to the worker"))?;
        Ok(Running { child, socket, held: Held::new(self.ledger.clone()), _broker: broker })
    }

    /// Hears the worker until that is over.
    fn serve(&self, running: &mut Running) -> Result<Over, Error> {
        let Signals { ends, replaces } = &self.signals;
        loop {
            let mut fds = [running.socket.as_fd(), ends.as_fd(), replaces.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut fds, None) {
                Ok(_) | Err(io::Errno::INTR) => {}
                Err(error) => return Err(failed("wait")(error)),
            }
            let [_, to_end, to_replace] = fds.map(|fd| !fd.revents().is_empty());
            if to_end {
                return Ok(Over::Ends);
            }
            if to_replace {
                let _ = io::read(replaces, &mut [0; 64]);
                return Ok(Over::Replaces);
            }
            if hear_all(running) == Heard::End {
                return Ok(Over::WorkerEnded);
            }
        }
    }

    /// Ends the worker, if it has not ended, and does what it has not done.
    fn end(&self, mut running: Running, is_asked: bool) -> Result<ExitStatus, Error> {
        if is_asked {
            // The worker hears this as the end, and can still tell what it gives back. It may have ended already.
            let _ = shutdown(&running.socket, Shutdown::Write);
            hear_until(&mut running, Instant::now() + GRACE);
        }
        // A worker that closes its socket and runs on must not touch the connections any more.
        let _ = running.child.kill();
        let status = running.child.wait().map_err(Error::Spawn)?;
        hear_all(&mut running);
        self.restore(&mut running.held)?;
        Ok(status)
    }

    fn restore(&self, held: &mut Held) -> Result<(), Error> {
        let restored = held.restore_all();
        // A device that is gone has no frames.
        let parts = self.devices.iter().map(Parts::try_clone).collect::<Result<Vec<_>, _>>()?;
        let mut devices: Vec<Device> = parts.into_iter().filter_map(|parts| Device::from_parts(parts).ok()).collect();
        for device in &mut devices {
            for ends in &restored {
                let _ = device.taken.remove(&Tuple::new(ends.local, ends.remote));
            }
            // What the program of the device has put there for the worker is the kernel's now.
            inject_all(device);
        }
        if !restored.is_empty() {
            eprintln!("sidestep-stack: the keeper has given {} connections back to the kernel", restored.len());
            wait_for_programs();
            devices.iter_mut().for_each(inject_all);
        }
        Ok(())
    }
}

/// The option that makes this program a worker. Its value: the descriptor of the socket to the keeper.
pub const WORKER: &str = "--worker";
/// The option that tells a worker how many of the passed descriptors belong to a device; once for each device.
pub const PARTS: &str = "--parts";

/// Whether the descriptor becomes readable within this time.
pub fn is_readable(descriptor: impl AsFd, within: Duration) -> bool {
    let Ok(time) = within.try_into() else { return false };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&time)).is_ok_and(|n| n > 0)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    All,
    End,
}

fn hear_all(running: &mut Running) -> Heard {
    loop {
        match wire::receive(running.socket.as_fd()) {
            Incoming::Record(record) => running.held.hear(&record.msg, record.fd),
            Incoming::Garbage { .. } => {}
            Incoming::Empty => return Heard::All,
            Incoming::End => return Heard::End,
        }
    }
}

fn hear_until(running: &mut Running, end: Instant) {
    while hear_all(running) == Heard::All {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !is_readable(&running.socket, left) {
            return;
        }
    }
}

fn inject_all(device: &mut Device) {
    let Device { queues, injector, .. } = device;
    for queue in queues {
        loop {
            let batch = queue.receiver.receive(usize::MAX);
            if batch.is_empty() {
                break;
            }
            for frame in batch.frames() {
                inject(injector, &frame.to_vec());
            }
        }
    }
}
