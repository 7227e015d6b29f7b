//! A connection on its way: towards the stack, in its hands, and back.

use super::Worker;
use crate::carried::Carried;
use crate::cause::Cause;
use crate::error::chain;
use crate::stage::{Conn, Stage};
use crate::timers::now;
use rustix::fd::AsFd;
use sidestep_tcp::{Checksums, Segment, Tuple};

/// Microseconds between looks at a program that is to enter its rings.
const LOOK: u64 = 200;
/// Microseconds until a program must have entered its rings once its packets are diverted.
const PATIENCE: u64 = 200_000;

impl Worker {
    /// Takes a connection as far as possible.
    pub(super) fn advance(&mut self, id: u64) {
        let mut conns = std::mem::take(&mut self.conns);
        let result = conns.get_mut(&id).map_or(Ok(()), |conn| self.step(conn, id));
        self.conns = conns;
        if let Err(cause) = result {
            self.end(id, &cause, None);
        }
    }

    fn step(&mut self, conn: &mut Conn, id: u64) -> Result<(), Cause> {
        let time = now();
        let socket = conn.subject.socket.as_fd();
        match &mut conn.stage {
            Stage::Carried(carried) => {
                let queue = &mut self.device.queues[0];
                let mut frames = queue.sender.outgoing();
                let sent = carried.send(&mut frames, time);
                frames.submit();
                if !sent? {
                    self.due.insert(id);
                }
                self.timers.set(id, carried.deadline());
                return Ok(());
            }
            Stage::Assigned(program, _) if program.is_ready() => {
                self.device.taken.add(&sidestep_device::Tuple::new(conn.subject.local, conn.subject.remote))?;
                conn.change(|program, record| Stage::Diverted(program, record, self.grace.begin(), time));
            }
            Stage::Diverted(program, _, grace, since) => {
                let since = *since;
                if self.grace.has_passed(*grace) && program.begin(socket)? {
                    conn.change(|program, record| Stage::Entering(program, record, since));
                } else if time > since + PATIENCE {
                    return Err(Cause::Slow);
                }
            }
            Stage::Entering(program, _, since) => {
                if program.has_entered(socket)? {
                    return self.take(conn, id, time);
                } else if time > *since + PATIENCE {
                    return Err(Cause::Slow);
                }
                program.notify();
            }
            Stage::Assigned(..) | Stage::Over => {}
        }
        self.timers.set(id, Some(time + LOOK));
        Ok(())
    }

    fn take(&mut self, conn: &mut Conn, id: u64, time: u64) -> Result<(), Cause> {
        let Stage::Entering(program, record, since) = std::mem::replace(&mut conn.stage, Stage::Over) else {
            return Ok(());
        };
        let mut carried = match Carried::take(program, record, conn.subject.socket.as_fd(), &conn.subject.path, time) {
            Ok(carried) => Box::new(carried),
            Err(failed) => {
                if let Some((program, record)) = failed.left {
                    conn.stage = Stage::Entering(program, record, since);
                }
                return Err(failed.cause);
            }
        };
        self.totals.taken += 1;
        let held = std::mem::take(&mut conn.held);
        let mut segments = held.iter().filter_map(|frame| Segment::parse(frame, Checksums::MayBePartial).ok());
        let received = segments.try_for_each(|segment| carried.receive(&segment, time));
        conn.stage = Stage::Carried(carried);
        self.due.insert(id);
        received
    }

    /// The stack no longer carries the connection. `frame`: the kernel is to judge it.
    pub(super) fn end(&mut self, id: u64, cause: &Cause, frame: Option<Vec<u8>>) {
        let Some(conn) = self.conns.remove(&id) else { return };
        let Conn { subject, place, number, stage, held } = conn;
        self.say(&format!("{} back to the kernel: {}", subject.remote, chain(cause)));
        match stage {
            Stage::Carried(carried) => {
                self.totals.returned += 1;
                if let Err(error) = carried.give_back(subject.socket.as_fd()) {
                    eprintln!("sidestep-stack: {}: {}", subject.remote, chain(&error));
                }
            }
            Stage::Assigned(mut program, record)
            | Stage::Diverted(mut program, record, ..)
            | Stage::Entering(mut program, record, _) => {
                program.give_up();
                record.free();
            }
            Stage::Over => {}
        }
        // What fails here is the device's end.
        let _ = self.device.taken.remove(&sidestep_device::Tuple::new(subject.local, subject.remote));
        held.into_iter().chain(frame).for_each(|frame| self.inject(frame));
        self.by_tuple.remove(&Tuple::new(subject.local, subject.remote));
        self.by_slot.remove(&(place.0, place.2 as usize));
        self.timers.set(id, None);
        self.control.release(place);
        // A keeper that has ended holds nothing; the next turn finds that out.
        let _ = self.custody.drop_socket(number);
        self.free.push(number);
        self.closing.close(subject.socket);
    }
}
