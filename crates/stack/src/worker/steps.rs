//! A connection on its way: towards the stack, in its hands, and back.

use super::Worker;
use crate::carried::{Carried, NotCarried};
use crate::cause::Cause;
use crate::frames::{inject, receive_held};
use crate::handover::{Unread, abandon, is_stranded};
use crate::pace::Pace;
use crate::program::Program;
use crate::record::{Ends, Record};
use crate::stage::{Conn, Stage};
use crate::subject::Subject;
use crate::timers::now;
use rustix::fd::{AsFd, AsRawFd};
use sidestep_device::Outgoing;
use sidestep_error::chain;
use sidestep_ring::page;
use sidestep_sys::tcp::traffic;
use sidestep_tcp::Tuple;

/// Microseconds between looks at a program that is to enter its rings.
const LOOK: u64 = 200;
/// The most doublings of [`LOOK`]: each look in vain is one. That makes 0.1 s.
const DOUBLINGS: u32 = 9;
/// Looks in vain, in about ten seconds, after which a connection counts as idle.
const IDLE_LOOKS: u32 = 100;
/// Microseconds between two looks at an idle connection: ten thousand of them cost next to nothing.
const IDLE_LOOK: u64 = 2_000_000;
/// Microseconds between tries to send what a program has left in its ring.
const LEFT: u64 = 1000;
/// The most doublings of [`LEFT`].
const LEFTS: u32 = 5;
/// The most doublings of the pause after a return: each return is one. By default that makes a minute.
const PAUSES: u32 = 7;
/// Microseconds between tries to give back a connection to whose peer the kernel has no way.
const AGAIN: u64 = 20_000;
/// Microseconds after which such a connection is given up.
const STRANDED: u64 = 120_000_000;
/// Microseconds after which a connection that the stack has carried counts as well-behaved.
const STEADY: u64 = 10_000_000;
/// Microseconds that a grace period may take.
const PATIENCE: u64 = 200_000;
/// Microseconds that a program has then to enter its rings: its packets wait.
const ENTER: u64 = 20_000;

impl Worker {
    /// Takes a connection as far as possible.
    pub(super) fn advance(&mut self, id: u32, time: u64) {
        let mut conns = std::mem::take(&mut self.conns);
        let result = conns[id as usize].as_mut().map_or(Ok(()), |conn| self.step(conn, id, time));
        self.conns = conns;
        if let Err(cause) = result {
            self.end(id, cause);
        }
    }

    fn step(&mut self, conn: &mut Conn, id: u32, time: u64) -> Result<(), Cause> {
        let socket = conn.subject.socket.as_fd();
        match &mut conn.stage {
            Stage::Carried(carried) => {
                let mut frames = self.outgoing(conn.subject.device, id);
                let sent = carried.send(&mut frames, time);
                frames.submit();
                if !sent? {
                    self.due.insert(id);
                }
                self.timers.set(id, Some(carried.deadline()));
                return Ok(());
            }
            Stage::Assigned(program, _, from) => {
                program.grant_socket();
                program.check_wish()?;
                if !program.send_left(socket) {
                    conn.looks = (conn.looks + 1).min(LEFTS);
                    self.timers.set(id, Some(time + (LEFT << conn.looks)));
                    return Ok(());
                }
                let is_time = time >= *from && program.is_ready();
                let asked = if is_time { traffic(socket.as_raw_fd()) } else { None };
                let Some(carried) = asked.filter(|carried| program.has_moved(carried)) else {
                    conn.looks = (conn.looks + 1).min(IDLE_LOOKS);
                    self.timers.set(id, Some((*from).max(time + until_next_look(conn.looks))));
                    return Ok(());
                };
                if conn.pace.is_bulk(carried, self.settings.longest_message) {
                    return Err(Cause::Bulk);
                }
                match conn.returns > 0 || conn.subject.is_stale {
                    true => conn.subject.refresh(&self.indices())?,
                    false => conn.subject.check()?,
                }
                self.observe(conn, id)?;
            }
            Stage::Observed(program, _) => {
                program.check_wish()?;
                let Subject { local, remote, .. } = conn.subject;
                let tuple = sidestep_device::Tuple::new(local, remote);
                let taken = &self.devices[conn.subject.device].taken;
                if program.is_ready() && taken.is_seen(&tuple)? {
                    taken.add(&tuple)?;
                    conn.change(|program, record| Stage::Diverted(program, record, self.grace.begin(), time));
                } else {
                    conn.looks = (conn.looks + 1).min(IDLE_LOOKS);
                    self.timers.set(id, Some(time + until_next_look(conn.looks)));
                    return Ok(());
                }
            }
            Stage::Diverted(program, _, grace, since) => {
                program.check_wish()?;
                let (since, has_passed) = (*since, self.grace.has_passed(*grace));
                if has_passed && program.begin(socket)? {
                    conn.change(|program, record| Stage::Entering(program, record, time));
                } else if time > since + PATIENCE {
                    return Err(if has_passed { Cause::Slow } else { Cause::Busy });
                }
            }
            Stage::Entering(program, _, since) => {
                program.check_wish()?;
                if program.has_entered(socket)? {
                    return self.take(conn, id, time);
                } else if time > *since + ENTER {
                    return Err(Cause::Slow);
                }
                program.notify();
            }
            Stage::Stranded(..) => return Err(Cause::Path),
            Stage::Over => {}
        }
        self.timers.set(id, Some(time + LOOK));
        Ok(())
    }

    /// Frames for segments of this connection: each connection has one queue.
    fn outgoing(&mut self, device: usize, id: u32) -> Outgoing<'_> {
        let queues = &mut self.devices[device].queues;
        let number = id as usize % queues.len();
        queues[number].sender.outgoing()
    }

    fn take(&mut self, conn: &mut Conn, id: u32, time: u64) -> Result<(), Cause> {
        let Stage::Entering(program, record, since) = std::mem::replace(&mut conn.stage, Stage::Over) else {
            return Ok(());
        };
        let pace = Pace::new(self.settings.longest_message);
        let mut carried = match Carried::take(program, record, &conn.subject, pace, time) {
            Ok(carried) => Box::new(carried),
            Err(failed) => {
                let (stage, cause) = match *failed {
                    NotCarried::Kernel(program, record, cause) => (Stage::Entering(*program, record, since), cause),
                    NotCarried::Emptied(carried, cause) => {
                        self.count_taken();
                        (Stage::Carried(carried), cause)
                    }
                };
                conn.stage = stage;
                return Err(cause);
            }
        };
        conn.taken_at = Some(time);
        self.count_taken();
        let received = receive_held(&mut carried, &mut conn.held, time);
        conn.stage = Stage::Carried(carried);
        self.due.insert(id);
        received
    }

    fn count_taken(&mut self) {
        self.totals.taken += 1;
        self.count(page::count_upgraded);
    }

    /// Waits for a packet of the connection at the device. One whose packets come by another device, or with other addresses than the
    /// socket's (NAT), is never taken: its socket would get segments while it is parked.
    fn observe(&mut self, conn: &mut Conn, id: u32) -> Result<(), Cause> {
        let Subject { local, remote, .. } = conn.subject;
        let tuple = Tuple::new(local, remote);
        if self.by_tuple.contains_key(&tuple) {
            return Err(Cause::Twice);
        }
        self.by_tuple.insert(tuple, id);
        self.devices[conn.subject.device].taken.observe(&sidestep_device::Tuple::new(local, remote))?;
        conn.looks = 0;
        conn.change(Stage::Observed);
        Ok(())
    }

    /// The stack no longer carries the connection. The kernel is to judge the frames that it holds.
    pub(super) fn end(&mut self, id: u32, cause: Cause) {
        let Some(mut conn) = self.conns[id as usize].take() else { return };
        conn.is_ending = false;
        let (program, record, cause) = match self.give_back(&mut conn, id, cause) {
            Ok(given) => given,
            Err(stranded) => {
                conn.stage = *stranded;
                self.timers.set(id, Some(now() + AGAIN));
                self.conns[id as usize] = Some(conn);
                return;
            }
        };
        self.say(&format!("{} back to the kernel: {}", conn.subject.remote, chain(&cause)));
        self.count(|page| page::count_reason(page, cause.reason()));
        program.set_reason(cause.reason());
        let Subject { local, remote, device, .. } = conn.subject;
        let device = &self.devices[device];
        // Another connection may have the same tuple, in another network namespace.
        if self.by_tuple.get(&Tuple::new(local, remote)) == Some(&id) {
            // What fails here is the device's end.
            let _ = device.taken.remove(&sidestep_device::Tuple::new(local, remote));
            self.by_tuple.remove(&Tuple::new(local, remote));
        }
        conn.held.drain(..).for_each(|frame| inject(&device.injector, &frame));
        if cause.passes() { self.rest(id, conn, program, record) } else { self.release(id, conn, &program) }
    }

    /// The kernel carries the connection, or it has ended. Err: not now.
    fn give_back(&mut self, conn: &mut Conn, id: u32, cause: Cause) -> Result<(Program, Record, Cause), Box<Stage>> {
        let time = now();
        let (mut carried, cause, since) = match std::mem::replace(&mut conn.stage, Stage::Over) {
            Stage::Carried(mut carried) => {
                let mut frames = self.outgoing(conn.subject.device, id);
                if matches!(cause, Cause::Segment(why) if why.is_loss()) {
                    carried.send_missing(&mut frames, time);
                }
                carried.acknowledge(&mut frames, time);
                frames.submit();
                (carried, cause, time)
            }
            Stage::Stranded(carried, first, since) => (carried, if cause.passes() { first } else { cause }, since),
            Stage::Assigned(mut program, record, _)
            | Stage::Observed(mut program, record)
            | Stage::Diverted(mut program, record, ..)
            | Stage::Entering(mut program, record, _) => {
                program.give_up();
                return Ok((program, record, cause));
            }
            Stage::Over => unreachable!("every change of stages leaves one"),
        };
        let socket = conn.subject.socket.as_fd();
        let unread = if matches!(cause, Cause::Path | Cause::Device(_)) { Unread::InRing } else { Unread::ToKernel };
        let given = carried.give_back(socket, unread);
        let is_lost = match &given {
            Ok(()) => false,
            Err(error) if is_stranded(error) && time < since + STRANDED && !matches!(cause, Cause::Ending) => {
                return Err(Box::new(Stage::Stranded(carried, cause, since)));
            }
            Err(error) => {
                tracing::error!("{}: {}", conn.subject.remote, chain(error));
                true
            }
        };
        self.totals.returned += 1;
        self.count(page::count_returned);
        let (mut program, record) = carried.into_parts();
        if is_lost {
            abandon(&mut program, socket);
        }
        Ok((program, record, if is_lost { Cause::Left } else { cause }))
    }

    /// The connection may be taken again, but not at once: in the kernel its congestion control begins anew each time.
    fn rest(&mut self, id: u32, mut conn: Conn, program: Program, record: Record) {
        let time = now();
        if conn.taken_at.take().is_some_and(|taken| time.saturating_sub(taken) > STEADY) {
            conn.returns = 0;
        }
        let from = time + (self.settings.pause << conn.returns.min(PAUSES));
        (conn.returns, conn.looks) = (conn.returns + 1, 0);
        record.assign(&Ends { local: conn.subject.local, remote: conn.subject.remote });
        conn.stage = Stage::Assigned(program, record, from);
        self.timers.set(id, Some(from));
        self.conns[id as usize] = Some(conn);
    }

    /// The stack has nothing to do with the connection any more.
    fn release(&mut self, id: u32, conn: Conn, program: &Program) {
        self.count(|page| page::count_bytes(page, program.bytes()));
        Record::new(self.ledger.clone(), conn.number).free();
        if let Some(served) = self.links.get_mut(&conn.place.0) {
            served.set_conn(conn.place.2 as usize, None);
        }
        self.timers.set(id, None);
        self.closing.close(conn.subject.socket);
        // The keeper closes the last copy, and says so to the program. One that has ended has none; the next turn finds that out.
        if self.custody.drop_socket(conn.number).is_err() {
            program.set_socket_held(false);
        }
        self.control.release(conn.place);
        self.free.push(conn.number);
    }
}

/// Microseconds until the next look, after so many in vain.
fn until_next_look(looks: u32) -> u64 {
    if looks < IDLE_LOOKS { LOOK << looks.min(DOUBLINGS) } else { IDLE_LOOK }
}
