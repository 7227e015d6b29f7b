//! What is done for a worker that has ended, by the keeper or by the standby: each of its connections goes back to the kernel.

use crate::error::Error;
use crate::frames::{inject, pass_on, tuple_of};
use crate::held::Held;
use crate::process::{GRACE, LOOK, Process};
use crate::readable::is_readable;
use crate::record::Ends;
use crate::restoration::{Restoration, tuple};
use crate::stage::HELD;
use rustix::fd::{BorrowedFd, OwnedFd};
use sidestep_broker::wire::{self, Incoming};
use sidestep_device::{Device, Parts, Taken, wait_for_programs};
use sidestep_tcp::Tuple;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the next connection is waited for that goes back. It is more than those take for which the kernel has no way.
const BOUND: Duration = Duration::from_secs(3);

/// Whether more can come from the worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It may say more.
    All,
    /// Likewise, but this process had no room for a descriptor: should the worker be killed, a connection of it would stay parked, or a
    /// program asleep.
    Lost,
    /// It has ended, and all that it said is heard.
    End,
}

/// Hears all that the worker has said.
pub fn hear_all(worker: BorrowedFd, held: &mut Held) -> Heard {
    let mut has_lost = false;
    loop {
        match wire::receive(worker) {
            Incoming::Record(record) => {
                has_lost |= record.fd_lost;
                held.hear(&record.msg, record.fd);
            }
            Incoming::Garbage { .. } => {}
            Incoming::Empty => return if has_lost { Heard::Lost } else { Heard::All },
            Incoming::End => return Heard::End,
        }
    }
}

/// Hears the worker until it has ended, or for [`GRACE`].
pub fn hear_out(socket: BorrowedFd, held: &mut Held, worker: &Process) {
    let end = Instant::now() + GRACE;
    while hear_all(socket, held) != Heard::End {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || worker.has_ended() {
            return;
        }
        is_readable(socket, left.min(LOOK));
    }
}

/// Gives back what the worker has not given back. `ended`: the worker, and who was killed while it gave the worker's connections back.
/// `broker`: the worker's socket to the broker. Waits until nothing has gone back for [`BOUND`], or for [`GRACE`]: what is held up longer
/// goes back later, by its executor.
///
/// # Errors
///
/// Some descriptors of a device cannot be copied. The connections are back nevertheless, but frames of theirs may come to this process
/// for as long as it has the device.
pub fn restore(
    devices: &[Parts],
    held: &mut Held,
    ended: Vec<Process>,
    broker: Arc<OwnedFd>,
    by: &str,
) -> Result<(), Error> {
    held.end_claims();
    let (mut opened, not_opened) = match open(devices) {
        Ok(opened) => (opened, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    // Frames that the worker has left in the send rings leave now: the kernel takes their bytes for sent.
    for queue in opened.iter_mut().flat_map(|device| &mut device.queues) {
        let _ = queue.sender.kick();
    }
    let all = held.ends();
    let mut waiting = Waiting(all.iter().flatten().map(|ends| (tuple(ends), Vec::new())).collect());
    let (tables, without_table) = tables(devices);
    let restoration = Arc::new(Restoration::new(ended, broker, tables, &all));
    held.restore_all(&restoration);
    let (began, mut number) = (Instant::now(), 0);
    let mut go_on = |restored: Vec<Ends>| {
        number += restored.len();
        restoration.remove(&restored);
        // Those that wait here are older than those at the device.
        restored.iter().for_each(|ends| waiting.pass_on(ends, &opened));
        waiting.hear(&mut opened);
    };
    go_on(Vec::new());
    while let Some(restored) = restoration.next((began + GRACE).min(Instant::now() + BOUND)) {
        go_on(restored);
    }
    let (restored, late) = restoration.leave();
    go_on(restored);
    if number > 0 {
        tracing::info!("the {by} has given {number} connections back to the kernel");
        wait_for_programs();
        waiting.hear(&mut opened);
    }
    if late > 0 {
        tracing::warn!("{late} connections are not back yet: programs of their users hold the locks of sockets");
    }
    not_opened.or(without_table).map_or(Ok(()), Err)
}

/// Those that are still there: a device that is gone has no frames.
fn open(devices: &[Parts]) -> Result<Vec<Device>, Error> {
    let parts = devices.iter().map(Parts::try_clone).collect::<Result<Vec<_>, _>>()?;
    Ok(parts.into_iter().filter_map(|parts| Device::from_parts(parts).ok()).collect())
}

/// The tables of the devices, without those that cannot be copied, and why one cannot.
fn tables(devices: &[Parts]) -> (Vec<Taken>, Option<Error>) {
    let (mut tables, mut failed) = (Vec::new(), None);
    for parts in devices {
        match parts.taken() {
            Ok(table) => tables.push(table),
            Err(error) => failed = Some(error.into()),
        }
    }
    (tables, failed)
}

/// Frames of connections that have not gone back yet, each with the number of its device.
struct Waiting(HashMap<Tuple, Vec<(usize, Vec<u8>)>>);

impl Waiting {
    /// Takes what the programs of the devices have put there for the worker. The kernel gets what belongs to no connection here. Each
    /// queue is looked at once, so that a peer that sends on and on does not keep this process here.
    fn hear(&mut self, devices: &mut [Device]) {
        for (number, device) in devices.iter_mut().enumerate() {
            let Device { queues, injector, taken, .. } = device;
            for queue in queues {
                let batch = queue.receiver.receive(usize::MAX);
                for frame in batch.frames().map(|frame| frame.to_vec()) {
                    let Some(tuple) = tuple_of(&frame) else { continue };
                    match self.0.get_mut(&tuple) {
                        Some(waiting) if waiting.len() < HELD => waiting.push((number, frame)),
                        Some(_) => {}
                        None => pass_on(taken, injector, &tuple, &frame),
                    }
                }
            }
        }
    }

    /// The connection has gone back: the kernel gets its frames.
    fn pass_on(&mut self, ends: &Ends, devices: &[Device]) {
        let waited = self.0.remove(&tuple(ends)).unwrap_or_default();
        waited.iter().for_each(|(device, frame)| inject(&devices[*device].injector, frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::tests::{copy, memory_of_a_link};
    use crate::held::tests::{address, holds, is_held};
    use crate::ledger::Ledger;
    use crate::record::{Record, Stage};
    use rustix::fd::AsFd;
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
        socketpair,
    };
    use sidestep_abi::msg::{Kind, Msg};
    use std::io::IoSlice;
    use std::mem::MaybeUninit;

    #[test]
    fn the_loss_of_a_descriptor_is_heard() {
        let (worker, keeper) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("sockets");
        let mut held = Held::new(Arc::new(Ledger::create(1).expect("a ledger"))).expect("a thread");
        let mut hear = || hear_all(keeper.as_fd(), &mut held);
        let (claim, msg) = (copy(std::io::stderr()), Msg::new(Kind::Hello));
        let tell = || wire::send(worker.as_fd(), &msg, Some(claim.as_fd())).expect("room");
        tell();
        assert!(hear() == Heard::All);
        // Of two there is room for one only.
        let rights = [claim.as_fd(); 2];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
        sendmsg(&worker, &[IoSlice::new(&msg.to_bytes())], &mut control, SendFlags::NOSIGNAL).expect("room");
        tell();
        assert!(hear() == Heard::Lost, "whatever comes behind it");
        assert!(hear() == Heard::All);
        drop(worker);
        assert!(hear() == Heard::End);
    }

    #[test]
    fn connections_go_back_although_the_table_of_a_device_cannot_be_had() {
        let ledger = Arc::new(Ledger::create(1).expect("a ledger"));
        let mut held = Held::new(ledger.clone()).expect("a thread");
        let memory = holds(&mut held, 0, memory_of_a_link().as_fd(), 1);
        let record = Record::new(ledger, 0);
        record.assign(&Ends { local: address(1), remote: address(2) });
        let descriptors = (0..5).map(|_| copy(std::io::stderr())).collect();
        let no_device = Parts::from_descriptors(descriptors).expect("as many as a device has");
        let broker = Arc::new(copy(std::io::stderr()));
        assert!(restore(&[no_device], &mut held, Vec::new(), broker, "test").is_err());
        assert_eq!((record.stage(), is_held(&memory)), (Stage::Free, false));
    }
}
