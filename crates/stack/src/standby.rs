//! The standby: holds the same as the keeper, and takes its place if the keeper is killed together with the worker. It starts and
//! ends with the worker.

use crate::error::{Error, failed};
use crate::held::Held;
use crate::ledger::Ledger;
use crate::process::{LOOK, Process};
use crate::recovery::{Heard, hear_all, hear_out, restore};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::Timespec;
use sidestep_device::Parts;
use std::sync::Arc;

/// What the keeper passes to its standby.
pub struct Standby {
    /// The socket to the keeper.
    pub keeper: OwnedFd,
    /// The socket to the worker, which says the same to the keeper ([`crate::custody`]).
    pub worker: OwnedFd,
    /// The keeper.
    pub keeper_process: Process,
    /// The worker.
    pub worker_process: Process,
    /// The records.
    pub ledger: Ledger,
    /// The devices.
    pub devices: Vec<Parts>,
    /// The worker's socket to the broker: the broker does not hear that the worker has ended before its connections are back.
    pub broker: OwnedFd,
}

impl Standby {
    /// Serves until the keeper has ended, even if a thread of it still sleeps in the kernel. (A living keeper ends its standby by SIGKILL.)
    /// Then the worker gives everything back; the standby gives back what the worker did not, and waits for the keeper's threads that are
    /// in calls on these connections.
    ///
    /// # Errors
    ///
    /// A call that cannot fail has failed, or a descriptor of the worker is lost.
    pub fn run(self) -> Result<(), Error> {
        let mut held = Held::new(Arc::new(self.ledger)).map_err(failed("start a thread"))?;
        let look = Timespec::try_from(LOOK).unwrap_or_default();
        let mut has_ended = false;
        loop {
            let listens = if has_ended { PollFlags::empty() } else { PollFlags::IN };
            let mut fds = [PollFd::new(&self.keeper, PollFlags::IN), PollFd::new(&self.worker, listens)];
            let is_quiet = match poll(&mut fds[..if has_ended { 1 } else { 2 }], Some(&look)) {
                Ok(ready) => ready == 0,
                Err(Errno::INTR) => false,
                Err(error) => return Err(failed("wait")(error)),
            };
            if !fds[0].revents().is_empty() || is_quiet && self.keeper_process.has_ended() {
                break;
            }
            match hear_all(self.worker.as_fd(), &mut held) {
                // The keeper has the worker give everything back, and starts both anew.
                Heard::Lost => return Err(Error::DescriptorLost),
                Heard::End => has_ended = true,
                Heard::All => {}
            }
        }
        tracing::warn!("the keeper has ended");
        hear_out(self.worker.as_fd(), &mut held, &self.worker_process);
        // A worker that closes its socket and runs on must not touch the connections any more.
        self.worker_process.kill();
        hear_all(self.worker.as_fd(), &mut held);
        // The keeper may have been killed while it gave the connections of this worker back.
        let ended = vec![self.worker_process, self.keeper_process];
        restore(&self.devices, &mut held, ended, Arc::new(self.broker), "standby")
    }
}
