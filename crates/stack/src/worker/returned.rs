//! Connections that go to the executors of their domains, and come back.

use super::Worker;
use super::steps::{AGAIN, ENTER, LEFT, LEFTS, LOOK, PATIENCE};
use crate::calls::{self, Call, Done, Look, Outcome};
use crate::cause::Cause;
use crate::frames::receive_held;
use crate::record::Record;
use crate::stage::{Absence, Arrivals, Conn, Entry, LATE, Stage};
use sidestep_abi::Reason;
use sidestep_ring::page;

impl Worker {
    /// A connection that is here goes to its executor.
    pub(super) fn send_away(&mut self, mut conn: Conn, call: Call, time: u64) {
        let (id, domain, terms) = (conn.number, conn.subject.domain, self.terms.clone());
        self.conns[id as usize] = Some(Entry::Away(Absence::of(&mut conn, time, self.changes)));
        self.timers.set(id, Some(time + LATE));
        let (record, conn) = (Record::new(self.ledger.clone(), id), Box::new(conn));
        self.executors.give(domain, Box::new(move |_| Some(calls::run(conn, &call, &terms, &record))));
    }

    pub(super) fn hear_executors(&mut self, time: u64) -> bool {
        let mut has_heard = false;
        while let Some(done) = self.executors.next() {
            has_heard = true;
            match done {
                Done::Examined { number, changes, examined: Ok(subject), .. } => {
                    self.examined(number, changes, *subject);
                }
                Done::Examined { number, domain, examined: Err(why), .. } => self.declined(number, domain, &why),
                Done::TurnedAway(number, reason) => self.turned_away(number, reason),
                Done::Discarded(domain) => self.discarded(domain),
                Done::Called(conn, outcome) => self.returned(*conn, outcome, time),
                Done::Closed(id, place, program, domain) => {
                    self.executors.leave(domain);
                    self.closed(id, place, &program);
                }
            }
        }
        has_heard
    }

    fn returned(&mut self, mut conn: Conn, outcome: Outcome, time: u64) {
        let id = conn.number;
        let Some(Entry::Away(absence)) = self.conns[id as usize].take() else {
            unreachable!("only a connection that is away comes back")
        };
        let Absence { held, has_changed, changes, is_due, mut end, .. } = absence;
        conn.held = held;
        let was_looked_at = matches!(outcome, Outcome::Looked(_));
        conn.subject.is_stale |= was_looked_at && changes != self.changes;
        let result = match outcome {
            Outcome::Looked(look) => look.and_then(|look| self.looked(&mut conn, &look, time)),
            Outcome::Counted(received) => self.counted(&mut conn, received, time),
            Outcome::Began(began) => began.and_then(|has_begun| self.began(&mut conn, has_begun, time)),
            Outcome::Took(took) => self.took(&mut conn, took, time),
            Outcome::Gave(None) => {
                self.timers.set(id, Some(time + AGAIN));
                Ok(())
            }
            Outcome::Gave(Some(given)) => {
                self.totals.returned += 1;
                self.count(page::count_returned);
                self.left(id, conn, *given);
                // A path that changes is no news for a connection that the kernel has.
                end = end.filter(|cause| !cause.passes());
                return self.go_on(id, is_due, end);
            }
        };
        self.conns[id as usize] = Some(Entry::Here(conn));
        let path = (has_changed && !was_looked_at).then_some(Cause::Path);
        // What is for good counts more.
        let mut causes: Vec<Cause> = [end, result.err(), path].into_iter().flatten().collect();
        causes.sort_by_key(Cause::passes);
        self.go_on(id, is_due, causes.into_iter().next());
    }

    /// What has happened meanwhile takes effect.
    fn go_on(&mut self, id: u32, is_due: bool, end: Option<Cause>) {
        if is_due {
            self.due.insert(id);
        }
        if let Some(cause) = end {
            self.end(id, cause);
        }
    }

    fn looked(&mut self, conn: &mut Conn, look: &Look, time: u64) -> Result<(), Cause> {
        match (look, &conn.stage) {
            (Look::Left, _) => {
                conn.looks = (conn.looks + 1).min(LEFTS);
                self.timers.set(conn.number, Some(time + (LEFT << conn.looks)));
            }
            (Look::NotYet, Stage::Assigned(_, _, from)) => {
                let from = *from;
                self.look_later(conn, from, time);
            }
            // Another look follows at once, at the path, too.
            (Look::Ready, _) if conn.subject.is_stale => self.timers.set(conn.number, Some(time)),
            _ => {
                self.observe(conn)?;
                self.timers.set(conn.number, Some(time + LOOK));
            }
        }
        Ok(())
    }

    /// So many bytes has the socket of an observed connection received. The device's program notes a frame before the socket counts its
    /// bytes. So if there are more bytes than before, and no frame was noted, the packets come another way, and the kernel keeps the
    /// connection.
    fn counted(&mut self, conn: &mut Conn, received: Option<u64>, time: u64) -> Result<(), Cause> {
        let Stage::Observed(program, _) = &conn.stage else { return Ok(()) };
        match (conn.arrivals, received) {
            (Arrivals::Uncounted, Some(bytes)) => conn.arrivals = Arrivals::Counted(bytes),
            (Arrivals::Counted(before), Some(bytes)) if bytes > before && !self.is_seen(&conn.subject)? => {
                conn.arrivals = Arrivals::Elsewhere;
                program.set_reason(Reason::Unseen);
                if !std::mem::replace(&mut conn.is_unseen, true) {
                    let remote = conn.subject.remote;
                    self.say(&format!("{remote} stays with the kernel: its packets do not come by the device"));
                    self.count(|page| page::count_reason(page, Reason::Unseen));
                }
            }
            _ => {}
        }
        self.look_later(conn, 0, time);
        Ok(())
    }

    fn began(&mut self, conn: &mut Conn, has_begun: bool, time: u64) -> Result<(), Cause> {
        match conn.stage {
            _ if has_begun => conn.change(|program, record| Stage::Entering(program, record, time)),
            Stage::Diverted(_, _, _, since) if time > since + PATIENCE => return Err(Cause::Slow),
            _ => {}
        }
        self.timers.set(conn.number, Some(time + LOOK));
        Ok(())
    }

    fn took(&mut self, conn: &mut Conn, took: Result<bool, Cause>, time: u64) -> Result<(), Cause> {
        match &mut conn.stage {
            Stage::Carried(carried) => {
                self.totals.taken += 1;
                self.count(page::count_upgraded);
                took?;
                conn.taken_at = Some(time);
                self.due.insert(conn.number);
                receive_held(carried, &mut conn.held, time)
            }
            Stage::Entering(program, _, since) => {
                took?;
                if time > *since + ENTER {
                    return Err(Cause::Slow);
                }
                program.notify();
                self.timers.set(conn.number, Some(time + LOOK));
                Ok(())
            }
            _ => took.map(drop),
        }
    }
}
