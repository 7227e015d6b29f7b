//! Which connection a frame belongs to, and frames that are the kernel's.

use crate::carried::Carried;
use crate::cause::Cause;
use crate::due::Due;
use crate::stage::{Entry, HELD, Stage};
use sidestep_device::{Injector, Taken};
use sidestep_tcp::{Checksums, FrameError, Segment, Tuple, about, split};
use std::collections::HashMap;

/// What is left to be done after a frame.
pub enum Left {
    /// No connection here has to do with it: [`pass_on`].
    Unknown(Tuple, Vec<u8>),
    /// The connection goes back for this reason. The connection holds the frame.
    End(u32, Cause),
}

/// Gives a frame to its connection.
///
/// A frame that the kernel would drop is dropped here: unless the device's program runs in the driver, it would come back from the kernel,
/// over and over, as long as its connection is taken.
pub fn deliver(
    frame: &[u8],
    by_tuple: &HashMap<Tuple, u32>,
    conns: &mut [Option<Entry>],
    due: &mut Due,
    now: u64,
) -> Option<Left> {
    let parsed = Segment::parse(frame, Checksums::MayBePartial);
    let tuple = whose(frame, &parsed)?;
    let found = by_tuple.get(&tuple).and_then(|id| Some((*id, conns[*id as usize].as_mut()?)));
    let Some((id, entry)) = found else { return Some(Left::Unknown(tuple, frame.to_vec())) };
    let conn = match entry {
        Entry::Here(conn) => conn,
        Entry::Away(absence) => {
            absence.hold(frame);
            return None;
        }
    };
    match &mut conn.stage {
        // What follows a segment that the kernel is to judge must not be judged before it.
        Stage::Carried(carried) if !conn.is_ending => match receive(carried, parsed, now) {
            Ok(()) => {
                due.insert(id);
            }
            Err(cause) => {
                conn.is_ending = true;
                conn.held.push(frame.to_vec());
                return Some(Left::End(id, cause));
            }
        },
        _ if conn.held.len() < HELD => conn.held.push(frame.to_vec()),
        _ => {}
    }
    None
}

fn whose(frame: &[u8], parsed: &Result<Segment, FrameError>) -> Option<Tuple> {
    match parsed {
        Ok(segment) => Some(segment.tuple),
        Err(FrameError::Damaged(_)) => None,
        Err(FrameError::NotUnderstood(_)) => about(frame),
    }
}

/// Gives the frames that a connection has held to it, in order. Those from the one on that is a reason to give it back stay.
pub fn receive_held(carried: &mut Carried, held: &mut Vec<Vec<u8>>, now: u64) -> Result<(), Cause> {
    let mut done = 0;
    let outcome = held.iter().try_for_each(|frame| {
        receive(carried, Segment::parse(frame, Checksums::MayBePartial), now)?;
        done += 1;
        Ok(())
    });
    held.drain(..done);
    outcome
}

fn receive(carried: &mut Carried, parsed: Result<Segment, FrameError>, now: u64) -> Result<(), Cause> {
    match parsed {
        Ok(segment) => carried.receive(&segment, now),
        Err(FrameError::Damaged(_)) => Ok(()),
        Err(FrameError::NotUnderstood(what)) => Err(Cause::Packet(what)),
    }
}

/// Whose frame it is, if the kernel would not drop it.
pub fn tuple_of(frame: &[u8]) -> Option<Tuple> {
    whose(frame, &Segment::parse(frame, Checksums::MayBePartial))
}

/// Hands a frame that no connection here has to do with to the kernel. One whose connection is taken is dropped, since it would come back
/// over and over: an earlier worker's connection, which has not gone back yet. The peer sends it again.
pub fn pass_on(taken: &Taken, injector: &Injector, tuple: &Tuple, frame: &[u8]) {
    let (local, remote) = ((tuple.local, tuple.local_port).into(), (tuple.remote, tuple.remote_port).into());
    if !taken.is_taken(&sidestep_device::Tuple::new(local, remote)).unwrap_or(false) {
        inject(injector, frame);
    }
}

/// Hands a frame to the kernel. What is lost here is sent again by the peer.
pub fn inject(injector: &Injector, frame: &[u8]) {
    match split(frame, Injector::LIMIT) {
        Ok(pieces) => pieces.iter().for_each(|piece| drop(injector.inject(piece))),
        // Not TCP, or damaged: the kernel judges.
        Err(_) => drop(injector.inject(frame)),
    }
}
