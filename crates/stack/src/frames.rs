//! Which connection a frame belongs to, and frames that are the kernel's.

use crate::cause::Cause;
use crate::stage::{Conn, Stage};
use crate::timers::now;
use sidestep_device::Injector;
use sidestep_tcp::{Checksums, Segment, Tuple, split};
use std::collections::{BTreeSet, HashMap};

/// Frames that are kept for a connection while it is being taken. The peer sends further ones again.
const HELD: usize = 256;

/// Gives a frame to its connection. Err: it is the kernel's; the connection, if there is one, goes back with it.
pub fn deliver(
    frame: &[u8],
    by_tuple: &HashMap<Tuple, u64>,
    conns: &mut HashMap<u64, Conn>,
    due: &mut BTreeSet<u64>,
) -> Result<(), Option<(u64, Cause)>> {
    let segment = Segment::parse(frame, Checksums::MayBePartial).map_err(|_| None)?;
    let id = *by_tuple.get(&segment.tuple).ok_or(None)?;
    let conn = conns.get_mut(&id).ok_or(None)?;
    if let Stage::Carried(carried) = &mut conn.stage {
        carried.receive(&segment, now()).map_err(|cause| Some((id, cause)))?;
        due.insert(id);
    } else if conn.held.len() < HELD {
        conn.held.push(frame.to_vec());
    }
    Ok(())
}

/// Hands a frame to the kernel. What is lost here is sent again by the peer.
pub fn inject(injector: &Injector, frame: &[u8]) {
    match split(frame, Injector::LIMIT) {
        Ok(pieces) => pieces.iter().for_each(|piece| drop(injector.inject(piece))),
        // Not TCP, or damaged: the kernel judges.
        Err(_) => drop(injector.inject(frame)),
    }
}
