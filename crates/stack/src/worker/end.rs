//! The end of what the stack does with a connection: the kernel goes on with it, or its program has left it.

use super::Worker;
use super::steps::PAUSES;
use crate::calls::{Call, Done, Given, close};
use crate::carried::Carried;
use crate::cause::Cause;
use crate::frames::inject;
use crate::process::GRACE;
use crate::program::Program;
use crate::record::{Ends, Record};
use crate::stage::{Conn, Entry, Stage};
use crate::subject::Subject;
use crate::timers::now;
use sidestep_broker::closing::Closing;
use sidestep_error::chain;
use sidestep_ring::page;
use sidestep_tcp::Tuple;
use std::time::{Duration, Instant};

/// Microseconds after which a connection that the stack has carried counts as well-behaved.
const STEADY: u64 = 10_000_000;
/// Microseconds after which a connection of long messages that was not carried is looked at once more.
const LONG: u64 = 50_000;
/// After so many such looks its program may have it back for a while.
const LONG_LOOKS: u32 = 2;
/// How long the worker waits for the next result of an executor at its end, within [`GRACE`] for all of them. The keeper gives back what
/// is left.
const LAST: Duration = Duration::from_secs(2);

impl Worker {
    /// The stack no longer carries the connection. The kernel is to judge the frames that it holds.
    pub(super) fn end(&mut self, id: u32, cause: Cause) {
        match self.conns[id as usize].take() {
            Some(Entry::Here(conn)) => self.end_here(id, conn, cause),
            Some(Entry::Away(mut absence)) => {
                absence.note_end(cause);
                self.conns[id as usize] = Some(Entry::Away(absence));
            }
            None => {}
        }
    }

    fn end_here(&mut self, id: u32, mut conn: Conn, cause: Cause) {
        let time = now();
        conn.is_ending = false;
        conn.stage = match std::mem::replace(&mut conn.stage, Stage::Over) {
            Stage::Carried(mut carried) => {
                self.say_goodbye(&mut carried, conn.subject.device, id, &cause, time);
                Stage::Returning(carried, cause, time)
            }
            Stage::Returning(carried, first, since) => {
                Stage::Returning(carried, if cause.passes() { first } else { cause }, since)
            }
            Stage::Assigned(mut program, record, _)
            | Stage::Observed(mut program, record)
            | Stage::Diverted(mut program, record, ..)
            | Stage::Entering(mut program, record, _) => {
                program.give_up();
                return self.left(id, conn, Given { program, record, cause });
            }
            Stage::Over => unreachable!("every change of stages leaves one"),
        };
        self.send_away(conn, Call::GiveBack, time);
    }

    /// The last frames that the stack sends of a connection.
    fn say_goodbye(&mut self, carried: &mut Carried, device: usize, id: u32, cause: &Cause, time: u64) {
        let mut frames = self.outgoing(device, id);
        if matches!(cause, Cause::Segment(why) if why.is_loss()) {
            carried.send_missing(&mut frames, time);
        }
        carried.acknowledge(&mut frames, time);
        frames.submit();
    }

    /// The kernel carries the connection, or it has ended.
    pub(super) fn left(&mut self, id: u32, mut conn: Conn, given: Given) {
        let Given { program, record, cause } = given;
        // The program has seen that the messages are long: without its slot the connection is as fast as any other of the kernel's.
        let lets_go = matches!(cause, Cause::Left) && conn.long_looks >= LONG_LOOKS;
        let cause = if lets_go { Cause::Bulk } else { cause };
        let is_long = matches!(cause, Cause::Bulk);
        conn.long_looks = if is_long { conn.long_looks + 1 } else { 0 };
        self.say(&format!("{} back to the kernel: {}", conn.subject.remote, chain(&cause)));
        if conn.long_looks <= 1 {
            self.count(|page| page::count_reason(page, cause.reason()));
        }
        // With this reason the program asks the stack to let go.
        if !is_long || conn.long_looks >= LONG_LOOKS {
            program.set_reason(cause.reason());
        }
        let Subject { local, remote, device, .. } = conn.subject;
        let device = &self.devices[device];
        // Another connection may have the same tuple, in another network namespace.
        if self.by_tuple.get(&Tuple::new(local, remote)) == Some(&id) {
            // What fails here is the device's end.
            let _ = device.taken.remove(&sidestep_device::Tuple::new(local, remote));
            self.by_tuple.remove(&Tuple::new(local, remote));
        }
        conn.held.drain(..).for_each(|frame| inject(&device.injector, &frame));
        if cause.passes() && !lets_go {
            self.rest(id, conn, program, record);
        } else {
            self.release(id, conn, program, record);
        }
    }

    /// The connection may be taken again, but not at once: in the kernel its congestion control begins anew each time.
    fn rest(&mut self, id: u32, mut conn: Conn, program: Program, record: Record) {
        let time = now();
        let taken_at = conn.taken_at.take();
        if taken_at.is_some_and(|taken| time.saturating_sub(taken) > STEADY) {
            conn.returns = 0;
        }
        let pause = self.settings.pause << conn.returns.min(PAUSES);
        let is_soon = conn.long_looks == 1 && taken_at.is_none();
        let from = time + if is_soon { pause.min(LONG) } else { pause };
        (conn.returns, conn.looks) = (conn.returns + 1, 0);
        record.assign(&Ends { local: conn.subject.local, remote: conn.subject.remote });
        conn.stage = Stage::Assigned(program, record, from);
        self.timers.set(id, Some(from));
        self.due.insert(id); // the next step looks what the program has left in its ring
        self.conns[id as usize] = Some(Entry::Here(conn));
    }

    /// The stack has nothing to do with the connection any more.
    fn release(&mut self, id: u32, conn: Conn, program: Program, record: Record) {
        self.count(|page| page::count_bytes(page, program.bytes()));
        self.timers.set(id, None);
        let Conn { subject: Subject { socket, domain, local, remote, .. }, place, .. } = conn;
        record.assign(&Ends { local, remote });
        let mut program = Box::new(program);
        let close = move |closing: &mut Closing| {
            close(&mut program, &record, socket, closing);
            Some(Done::Closed(id, place, program, domain))
        };
        // It counts in its domain until then, as its record does.
        self.executors.give(domain, Box::new(close));
    }

    /// The worker's copy of a connection's socket is closed.
    pub(super) fn closed(&mut self, id: u32, place: (u32, u32, u32), program: &Program) {
        // Keeper and standby close theirs, and tell the program. A keeper that has ended has none; the next turn finds that out.
        if self.custody.drop_socket(id).is_err() {
            program.let_go_of_socket();
        }
        if let Some(served) = self.links.get_mut(&place.0) {
            served.set_conn(place.2 as usize, None);
        }
        self.control.release(place);
        self.free.push(id);
        self.drop_if_over(place.0);
    }

    /// Gives all connections back. It does not wait for executors that are held up: the keeper gives back what is left.
    pub(super) fn give_all_back(&mut self) {
        let end = Instant::now() + GRACE;
        (0..self.conns.len() as u32).for_each(|id| self.end(id, Cause::Ending));
        loop {
            self.hear_executors(now());
            self.kick();
            let is_done = self.links.values().all(|served| served.conns().next().is_none());
            if is_done || !self.executors.wait(LAST, end) {
                return;
            }
            self.executors.hush();
        }
    }
}
