//! What is done for a worker that has ended, by the keeper or by the standby: each of its connections goes back to the kernel.

use crate::error::Error;
use crate::frames::inject;
use crate::held::Held;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use sidestep_broker::wire::{self, Incoming};
use sidestep_device::{Device, Parts, Tuple, wait_for_programs};
use std::time::{Duration, Instant};

/// How long a worker may take to give everything back once it is to end.
pub const GRACE: Duration = Duration::from_secs(10);

/// Whether more can come from the worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It may say more.
    All,
    /// It has ended, and all that it said is heard.
    End,
}

/// Hears all that the worker has said.
pub fn hear_all(worker: BorrowedFd, held: &mut Held) -> Heard {
    loop {
        match wire::receive(worker) {
            Incoming::Record(record) => held.hear(&record.msg, record.fd),
            Incoming::Garbage { .. } => {}
            Incoming::Empty => return Heard::All,
            Incoming::End => return Heard::End,
        }
    }
}

/// Hears the worker until it has ended, or for [`GRACE`].
pub fn hear_out(worker: BorrowedFd, held: &mut Held) {
    let end = Instant::now() + GRACE;
    while hear_all(worker, held) == Heard::All {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !is_readable(worker, left) {
            return;
        }
    }
}

/// Gives back what the worker has not given back. The worker has ended.
///
/// # Errors
///
/// The descriptors of a device cannot be copied.
pub fn restore(devices: &[Parts], held: &mut Held, by: &str) -> Result<(), Error> {
    let mut opened = open(devices);
    // Frames that the worker has left in the send rings leave now: the kernel takes their bytes for sent.
    for queue in opened.iter_mut().flatten().flat_map(|device| &mut device.queues) {
        let _ = queue.sender.kick();
    }
    let restored = held.restore_all();
    for device in devices {
        let taken = device.taken()?;
        for ends in &restored {
            let _ = taken.remove(&Tuple::new(ends.local, ends.remote));
        }
    }
    let mut devices = opened?;
    // What the program of the device has put there for the worker is the kernel's now.
    devices.iter_mut().for_each(inject_all);
    if !restored.is_empty() {
        tracing::info!("the {by} has given {} connections back to the kernel", restored.len());
        wait_for_programs();
        devices.iter_mut().for_each(inject_all);
    }
    Ok(())
}

/// Those that are still there: a device that is gone has no frames.
fn open(devices: &[Parts]) -> Result<Vec<Device>, Error> {
    let parts = devices.iter().map(Parts::try_clone).collect::<Result<Vec<_>, _>>()?;
    Ok(parts.into_iter().filter_map(|parts| Device::from_parts(parts).ok()).collect())
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

/// Whether the descriptor becomes readable within this time.
pub fn is_readable(descriptor: impl AsFd, within: Duration) -> bool {
    let Ok(time) = within.try_into() else { return false };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&time)).is_ok_and(|n| n > 0)
}
