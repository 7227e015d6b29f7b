//! The keeper: starts the worker and its standby, and holds what the worker's connections need to survive it. It looks at no packet and
//! decides nothing. When the worker ends, in whatever way, it gives every connection back to the kernel, and starts another worker.

use crate::error::{Error, failed};
use crate::held::Held;
use crate::ledger::Ledger;
use crate::passing;
use crate::process::{LOOK, Process};
use crate::readable::is_readable;
use crate::recovery::{Heard, hear_all, hear_out, restore};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::{self, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::time::Timespec;
use sidestep_device::{Device, Parts};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// A worker that has served for less than this is not replaced at once.
const STEADY: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// The keeper of some devices.
pub struct Keeper {
    devices: Vec<Parts>,
    ledger: Arc<Ledger>,
    signals: Signals,
    program: WorkerCommand,
    /// A pidfd of this process: worker and standby learn of its end by that, too.
    this_process: OwnedFd,
}

/// What people may want of the keeper.
pub struct Signals {
    /// Readable once this process is to end.
    pub ends: UnixStream,
    /// Readable when another worker is to take the place of this one.
    pub replaces: UnixStream,
}

/// How a worker is started.
pub struct WorkerCommand {
    /// The program. The file may be another one by the time that the next worker starts.
    pub path: PathBuf,
    /// Its arguments, besides [`WORKER`].
    pub arguments: Vec<String>,
}

/// Why a worker is no longer heard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    WorkerEnded,
    StandbyEnded,
    /// See [`Heard::Lost`].
    DescriptorLost,
    Ends,
    Replaces,
}

/// A worker that runs.
struct Running {
    child: Child,
    worker: Process,
    socket: OwnedFd,
    held: Held,
    standby: Child,
    of_standby: OwnedFd,
    /// The broker does not hear that the worker has ended before the keeper has given the connections back.
    broker: Arc<OwnedFd>,
}

impl Keeper {
    /// `records`: the most connections at a time.
    pub fn new(devices: Vec<Device>, records: u32, signals: Signals, program: WorkerCommand) -> Result<Keeper, Error> {
        let ledger = Arc::new(Ledger::create(records).map_err(failed("make the ledger"))?);
        let devices = devices.into_iter().map(Device::into_parts).collect::<Result<_, _>>()?;
        let this_process = pidfd_open(getpid(), PidfdFlags::empty()).map_err(failed("open this process"))?;
        Ok(Keeper { devices, ledger, signals, program, this_process })
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
                    tracing::info!("the worker has given everything back; another one is started")
                }
                Over::StandbyEnded => tracing::warn!("the standby has ended; another one is started"),
                Over::WorkerEnded => {
                    let how = status.map_or_else(|| "a call of it has not".into(), |status| status.to_string());
                    tracing::warn!("the worker has ended ({how}); another one is started");
                }
                Over::DescriptorLost => tracing::warn!("{}; another worker is started", Error::DescriptorLost),
            }
            let has_failed = matches!(over, Over::WorkerEnded | Over::DescriptorLost);
            if has_failed && began.elapsed() < STEADY && is_readable(&self.signals.ends, PAUSE) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn start(&self, broker: OwnedFd) -> Result<Running, Error> {
        let (socket, of_worker) = pair()?;
        let (standby_to_worker, worker_to_standby) = pair()?;
        let (of_standby, to_keeper) = pair()?;
        let child = self.spawn(WORKER, &of_worker)?;
        let mut all = vec![broker.as_fd(), self.ledger.file(), worker_to_standby.as_fd(), self.this_process.as_fd()];
        all.extend(self.devices.iter().flat_map(Parts::descriptors));
        passing::send(socket.as_fd(), &all).map_err(failed("pass descriptors to the worker"))?;

        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(failed("open the worker"))?;
        let worker = Process::new(pidfd);
        let standby = self.spawn(STANDBY, &to_keeper)?;
        let mut all = vec![broker.as_fd(), self.ledger.file(), standby_to_worker.as_fd()];
        all.extend([self.this_process.as_fd(), worker.pidfd()]);
        all.extend(self.devices.iter().flat_map(Parts::descriptors));
        passing::send(of_standby.as_fd(), &all).map_err(failed("pass descriptors to the standby"))?;
        let held = Held::new(self.ledger.clone()).map_err(failed("start a thread"))?;
        Ok(Running { child, worker, socket, held, standby, of_standby, broker: Arc::new(broker) })
    }

    /// Starts this program in another role. It inherits a copy of `socket`, and learns how many descriptors belong to each device.
    fn spawn(&self, role: &str, socket: &OwnedFd) -> Result<Child, Error> {
        let inherited = fcntl_dupfd_cloexec(socket, 0).map_err(failed("pass a socket"))?;
        fcntl_setfd(&inherited, FdFlags::empty()).map_err(failed("pass a socket"))?;
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.arguments).arg(role).arg(inherited.as_raw_fd().to_string());
        for parts in &self.devices {
            command.arg(PARTS).arg(parts.descriptors().len().to_string());
        }
        command.spawn().map_err(Error::Spawn)
    }

    /// Hears the worker until one of [`Over`] happens.
    fn serve(&self, running: &mut Running) -> Result<Over, Error> {
        let Signals { ends, replaces } = &self.signals;
        let look = Timespec::try_from(LOOK).unwrap_or_default();
        loop {
            let mut fds = [running.socket.as_fd(), ends.as_fd(), replaces.as_fd(), running.of_standby.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let is_quiet = match poll(&mut fds, Some(&look)) {
                Ok(ready) => ready == 0,
                Err(io::Errno::INTR) => false,
                Err(error) => return Err(failed("wait")(error)),
            };
            let [_, to_end, to_replace, standby_ended] = fds.map(|fd| !fd.revents().is_empty());
            if to_end {
                return Ok(Over::Ends);
            }
            if to_replace {
                let _ = io::read(replaces, &mut [0; 64]);
                return Ok(Over::Replaces);
            }
            let heard = hear_all(running.socket.as_fd(), &mut running.held);
            if heard == Heard::End || is_quiet && running.worker.has_ended() {
                return Ok(Over::WorkerEnded);
            }
            if standby_ended {
                return Ok(Over::StandbyEnded);
            }
            if heard == Heard::Lost {
                return Ok(Over::DescriptorLost);
            }
        }
    }

    /// Ends the worker, if it has not ended, and does what it has not done.
    fn end(&self, mut running: Running, is_asked: bool) -> Result<Option<ExitStatus>, Error> {
        if is_asked {
            // The worker hears this as the end, and can still tell what it gives back. It may have ended already.
            let _ = shutdown(&running.socket, Shutdown::Write);
            hear_out(running.socket.as_fd(), &mut running.held, &running.worker);
        }
        // A worker that closes its socket and runs on must not touch the connections any more.
        running.worker.kill();
        hear_all(running.socket.as_fd(), &mut running.held);
        restore(&self.devices, &mut running.held, vec![running.worker], running.broker, "keeper")?;
        // It has nothing left to do.
        let _ = running.standby.kill();
        let _ = running.standby.wait();
        Ok(ended(running.child))
    }
}

/// How a process has ended. None: a thread of it sleeps in the kernel, and is waited for by another one here.
fn ended(mut child: Child) -> Option<ExitStatus> {
    match child.try_wait() {
        Ok(Some(status)) => Some(status),
        _ => {
            let _ = Builder::new().name("reaper".into()).spawn(move || child.wait());
            None
        }
    }
}

/// The option that makes this program a worker. Its value: the descriptor of the socket to the keeper.
pub const WORKER: &str = "--worker";
/// The option that makes this program a standby, with the same value.
pub const STANDBY: &str = "--standby";
/// The option that tells a worker or a standby how many of the passed descriptors belong to a device; once for each device.
pub const PARTS: &str = "--parts";

/// Two ends of a socket for messages.
fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(failed("make a socket"))
}
