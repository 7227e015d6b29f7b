//! A connection on its way to the stack, and in its hands.

use super::Worker;
use crate::calls::Call;
use crate::cause::Cause;
use crate::stage::{Arrivals, Conn, Entry, Stage};
use crate::subject::Subject;
use sidestep_device::Outgoing;
use sidestep_tcp::Tuple;

/// Microseconds between looks at a program that is to enter its rings.
pub(super) const LOOK: u64 = 200;
/// The most doublings of [`LOOK`]: each look in vain is one. That makes 0.1 s.
const DOUBLINGS: u32 = 9;
/// Looks in vain, in about ten seconds, after which a connection counts as idle.
const IDLE_LOOKS: u32 = 100;
/// Looks in vain, in about 0.3 seconds, after which an observed connection whose socket receives bytes has packets that do not come by the
/// device.
const UNSEEN_LOOKS: u32 = 10;
/// Microseconds between two looks at an idle connection: ten thousand of them cost next to nothing.
const IDLE_LOOK: u64 = 2_000_000;
/// Looks at idle connections come together, at multiples of this: an executor that sleeps need not be woken for each.
const TOGETHER: u64 = 100_000;
/// Microseconds between tries to send what a program has left in its ring.
pub(super) const LEFT: u64 = 1000;
/// The most doublings of [`LEFT`].
pub(super) const LEFTS: u32 = 5;
/// The most doublings of the pause after a return: each return is one. By default that makes a minute.
pub(super) const PAUSES: u32 = 7;
/// Microseconds between tries to give back a connection to whose peer the kernel has no way.
pub(super) const AGAIN: u64 = 20_000;
/// Microseconds that a grace period may take.
pub(super) const PATIENCE: u64 = 200_000;
/// Microseconds that a program has then to enter its rings: its packets wait.
pub(super) const ENTER: u64 = 20_000;

impl Worker {
    /// Takes a connection as far as possible.
    pub(super) fn advance(&mut self, id: u32, time: u64) {
        let mut conns = std::mem::take(&mut self.conns);
        let result = match &mut conns[id as usize] {
            Some(Entry::Here(conn)) => self.step(conn, id, time),
            Some(Entry::Away(absence)) => {
                absence.note_due(time);
                Ok(None)
            }
            None => Ok(None),
        };
        self.conns = conns;
        match result {
            Ok(None) => {}
            Ok(Some(call)) => match self.conns[id as usize].take() {
                Some(Entry::Here(conn)) => self.send_away(conn, call, time),
                other => self.conns[id as usize] = other,
            },
            Err(cause) => self.end(id, cause),
        }
    }

    /// Returns what the connection's executor is to do, if it cannot go on otherwise.
    fn step(&mut self, conn: &mut Conn, id: u32, time: u64) -> Result<Option<Call>, Cause> {
        match &mut conn.stage {
            Stage::Carried(carried) => {
                let mut frames = self.outgoing(conn.subject.device, id);
                let sent = carried.send(&mut frames, time);
                frames.submit();
                if !sent? {
                    self.due.insert(id);
                }
                self.timers.set(id, Some(carried.deadline()));
                return Ok(None);
            }
            Stage::Assigned(program, _, from) => {
                program.grant_socket();
                program.check_wish()?;
                let from = *from;
                let is_time = time >= from && program.is_ready();
                if is_time || program.may_have_left() {
                    return Ok(Some(Call::Look { is_time }));
                }
                self.look_later(conn, from, time);
                return Ok(None);
            }
            Stage::Observed(program, _) => {
                program.check_wish()?;
                let is_ready = program.is_ready();
                if is_ready && self.is_seen(&conn.subject)? {
                    let Subject { local, remote, device, .. } = conn.subject;
                    self.devices[device].taken.add(&sidestep_device::Tuple::new(local, remote))?;
                    conn.change(|program, record| Stage::Diverted(program, record, self.grace.begin(), time));
                } else if is_ready && conn.arrivals != Arrivals::Elsewhere && is_count_due(conn.looks, id, time) {
                    return Ok(Some(Call::Count));
                } else {
                    self.look_later(conn, 0, time);
                    return Ok(None);
                }
            }
            Stage::Diverted(program, _, grace, since) => {
                program.check_wish()?;
                if self.grace.has_passed(*grace) {
                    return Ok(Some(Call::Begin));
                }
                if time > *since + PATIENCE {
                    return Err(Cause::Busy);
                }
            }
            Stage::Entering(program, _, since) => {
                program.check_wish()?;
                if program.reads_ring() {
                    return Ok(Some(Call::Take));
                }
                if time > *since + ENTER {
                    return Err(Cause::Slow);
                }
                program.notify();
            }
            Stage::Returning(..) => return Err(Cause::Path),
            Stage::Over => {}
        }
        self.timers.set(id, Some(time + LOOK));
        Ok(None)
    }

    /// A look was in vain. The next one is not before `from`.
    pub(super) fn look_later(&mut self, conn: &mut Conn, from: u64, time: u64) {
        conn.looks = (conn.looks + 1).min(IDLE_LOOKS);
        self.timers.set(conn.number, Some(from.max(next_look(conn.looks, time))));
    }

    /// Frames for segments of this connection: each connection has one queue.
    pub(super) fn outgoing(&mut self, device: usize, id: u32) -> Outgoing<'_> {
        let queues = &mut self.devices[device].queues;
        let number = id as usize % queues.len();
        queues[number].sender.outgoing()
    }

    /// Waits for a packet of the connection at the device. One whose packets come by another device, or with other addresses than the
    /// socket's (NAT), is never taken: its socket would get segments while it is parked. [`Worker::counted`] tells that.
    pub(super) fn observe(&mut self, conn: &mut Conn) -> Result<(), Cause> {
        let Subject { local, remote, .. } = conn.subject;
        let tuple = Tuple::new(local, remote);
        if self.by_tuple.contains_key(&tuple) {
            return Err(Cause::Twice);
        }
        self.by_tuple.insert(tuple, conn.number);
        self.devices[conn.subject.device].taken.observe(&sidestep_device::Tuple::new(local, remote))?;
        (conn.looks, conn.arrivals) = (0, Arrivals::Uncounted);
        conn.change(Stage::Observed);
        Ok(())
    }

    /// Whether a frame of an observed connection has come by the device.
    pub(super) fn is_seen(&self, subject: &Subject) -> Result<bool, Cause> {
        let tuple = sidestep_device::Tuple::new(subject.local, subject.remote);
        Ok(self.devices[subject.device].taken.is_seen(&tuple)?)
    }
}

/// When the next look follows, after so many in vain.
fn next_look(looks: u32, time: u64) -> u64 {
    match looks < IDLE_LOOKS {
        true => time + (LOOK << looks.min(DOUBLINGS)),
        false => (time + IDLE_LOOK).next_multiple_of(TOGETHER),
    }
}

/// Whether a look at an observed connection asks its socket, too, which takes its executor: two looks in a row if the connection is in
/// use, and ever fewer while nothing comes. Thousands that have just talked and are idle now would keep the processors from programs that
/// are to enter their rings. Of idle ones every 16th look asks.
fn is_count_due(looks: u32, id: u32, time: u64) -> bool {
    let Some(since) = looks.checked_sub(UNSEEN_LOOKS) else { return false };
    match looks < IDLE_LOOKS {
        true => since == 0 || since.is_power_of_two(),
        false => (time / IDLE_LOOK + u64::from(id)).is_multiple_of(16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_connection_that_is_not_idle_yet_is_asked_twice_and_then_ever_more_rarely() {
        let due: Vec<u32> = (0..IDLE_LOOKS).filter(|looks| is_count_due(*looks, 7, 0)).collect();
        assert_eq!(due, [10, 11, 12, 14, 18, 26, 42, 74]);
    }

    #[test]
    fn the_sockets_of_idle_connections_are_asked_in_turns() {
        let turns = |id: u32| (0..32).filter(move |turn| is_count_due(IDLE_LOOKS, id, turn * IDLE_LOOK)).count();
        assert!((0..16).all(|id| turns(id) == 2));
        let asked = (0..16).filter(|id| is_count_due(IDLE_LOOKS, *id, 5 * IDLE_LOOK)).count();
        assert_eq!(asked, 1, "one of sixteen at a time");
    }
}
