//! What the broker tells the worker: connections that may be taken, and the programs' links.

use super::Worker;
use crate::calls::Done;
use crate::cause::Cause;
use crate::error::{Error, failed};
use crate::link::{Link, Served};
use crate::program::Program;
use crate::record::{Ends, Record};
use crate::room;
use crate::stage::{Conn, Entry};
use crate::subject::{Declined, Subject};
use rustix::fd::{AsFd, OwnedFd};
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::closing::Closing;
use sidestep_broker::domain::Key;
use sidestep_broker::wire::Incoming;
use sidestep_error::chain;
use sidestep_ring::page;

/// A bit of the numbers of questions in slots, in which 0 means none.
const NOT_ZERO: u32 = 1 << 31;

impl Worker {
    pub(super) fn hear_broker(&mut self) -> Result<bool, Error> {
        let mut has_heard = false;
        loop {
            match self.control.receive() {
                Incoming::Empty => return Ok(has_heard),
                Incoming::End => return Err(Error::BrokerGone),
                Incoming::Garbage { .. } => {}
                Incoming::Record(record) if record.fd_lost => self.lost(&record.msg)?,
                Incoming::Record(record) => self.hear(&record.msg, record.fd)?,
            }
            has_heard = true;
        }
    }

    fn hear(&mut self, msg: &Msg, fd: Option<OwnedFd>) -> Result<(), Error> {
        match (msg.kind(), fd) {
            (Some(Kind::Reject), _) => return Err(Error::Rejected(msg.arg)),
            (Some(Kind::Welcome), Some(page)) => self.control.welcomed(&page).map_err(failed("map the page"))?,
            (Some(Kind::Foreign), Some(socket)) => self.shown(msg.arg, Key::of(msg), socket),
            (Some(Kind::Link), Some(memory)) => match Link::new(&memory, msg) {
                Ok(link) => {
                    self.custody.tell(msg, Some(memory.as_fd())).map_err(Error::KeeperGone)?;
                    self.links.insert(msg.link, Served::new(link));
                }
                Err(error) => self.say(&format!("cannot map a link: {error}")),
            },
            (Some(Kind::PeerDoorbell), Some(eventfd)) => {
                self.custody.tell(msg, Some(eventfd.as_fd())).map_err(Error::KeeperGone)?;
                if let Some(served) = self.links.get(&msg.link) {
                    served.link.set_doorbell(msg.place as usize, eventfd);
                }
            }
            (Some(Kind::Slot), None) => self.assigned(msg)?,
            (Some(Kind::Refused), None) => {
                let subject = self.wanted.remove(&msg.offer);
                self.discard(subject);
            }
            (Some(Kind::Unlink), None) => self.unlinked(msg.link),
            _ => {}
        }
        Ok(())
    }

    /// This process had no room for the descriptor that came with the message.
    fn lost(&mut self, msg: &Msg) -> Result<(), Error> {
        if msg.kind() != Some(Kind::Foreign) {
            return Err(Error::DescriptorLost);
        }
        self.count(page::count_seen);
        self.decline(msg.arg, Reason::FdLimit);
        Ok(())
    }

    /// Sockets of programs that this process holds, or an earlier worker's keeper.
    fn sockets(&self) -> usize {
        self.ledger.records() as usize - self.free.len() + self.wanted.len() + self.others
    }

    fn shown(&mut self, number: u64, domain: Key, socket: OwnedFd) {
        self.count(page::count_seen);
        let held = self.executors.connections(domain);
        if !room::is_for(held, self.sockets(), self.room) {
            self.say("not taken: the room that is left is for doorbells, or for others' connections");
            return self.turn_away(number, domain, socket, Reason::FdLimit);
        }
        if let Err(error) = self.executors.admit(domain) {
            self.say(&format!("not taken: no thread can be started: {error}"));
            return self.turn_away(number, domain, socket, Reason::Memory);
        }
        let (terms, changes, reports) = (self.terms.clone(), self.changes, self.executors.reports());
        let done = move |examined| Done::Examined { number, domain, changes, examined };
        let examine = move |closing: &mut Closing| match Subject::examine(socket, domain, &terms) {
            Ok(subject) => Some(done(Ok(Box::new(subject)))),
            Err((why, socket)) => {
                closing.close(reports.once_closed(socket, done(Err(why))));
                None
            }
        };
        self.others += 1;
        self.executors.give(domain, Box::new(examine));
    }

    /// Closes a socket for which there is no room. The broker has its answer only then: each domain may have so many open questions.
    fn turn_away(&mut self, number: u64, domain: Key, socket: OwnedFd, reason: Reason) {
        self.others += 1;
        self.executors.close(domain, socket, Done::TurnedAway(number, reason));
    }

    /// An executor has looked at a connection that was shown. `changes`: how many changes had been heard of before.
    pub(super) fn examined(&mut self, number: u64, changes: u64, subject: Subject) {
        self.others -= 1;
        let is_stale = changes != self.changes;
        self.wanted.insert(number, Subject { is_stale, ..subject });
        self.control.answer(number, None);
    }

    /// It has found that the connection cannot be carried, and has closed the socket.
    pub(super) fn declined(&mut self, number: u64, domain: Key, why: &Declined) {
        self.discarded(domain);
        self.say(&format!("not taken: {}", chain(why)));
        self.decline(number, why.reason());
    }

    /// A socket for which there was no room is closed.
    pub(super) fn turned_away(&mut self, number: u64, reason: Reason) {
        self.others -= 1;
        self.decline(number, reason);
    }

    fn decline(&mut self, number: u64, reason: Reason) {
        self.totals.declined += 1;
        self.count(|page| page::count_reason(page, reason));
        self.control.answer(number, Some(reason));
    }

    /// The connection is not needed.
    fn discard(&mut self, subject: Option<Subject>) {
        if let Some(Subject { socket, domain, .. }) = subject {
            self.others += 1;
            self.executors.close(domain, socket, Done::Discarded(domain));
        }
    }

    /// The socket of a connection that was shown, and that the stack has never carried, is closed.
    pub(super) fn discarded(&mut self, domain: Key) {
        self.others -= 1;
        self.executors.leave(domain);
    }

    fn assigned(&mut self, msg: &Msg) -> Result<(), Error> {
        let (place, slot) = ((msg.link, msg.side, msg.slot), msg.slot as usize);
        let (subject, served) = (self.wanted.remove(&msg.offer), self.links.get_mut(&msg.link));
        let (subject, served, number) = match (subject, served, self.free.pop()) {
            (Some(subject), Some(served), Some(number)) => (subject, served, number),
            (subject, _, number) => {
                self.free.extend(number);
                self.discard(subject);
                self.control.release(place);
                return Ok(());
            }
        };
        let question = msg.offer as u32 | NOT_ZERO;
        let socket = subject.socket.as_fd();
        self.custody.hold(number, question, place, subject.domain, socket).map_err(Error::KeeperGone)?;
        let record = Record::new(self.ledger.clone(), number);
        record.assign(&Ends { local: subject.local, remote: subject.remote });
        served.set_conn(slot, Some(number));
        let mut program = Program::new(served.link.clone(), slot);
        program.hold_socket(question);
        if self.conns.len() <= number as usize {
            self.conns.resize_with(number as usize + 1, || None);
        }
        self.conns[number as usize] = Some(Entry::Here(Conn::new(subject, place, program, record)));
        self.due.insert(number);
        Ok(())
    }

    /// The program has ended, and the broker gives its link up.
    fn unlinked(&mut self, link: u32) {
        let Some(served) = self.links.get_mut(&link) else { return };
        served.is_over = true;
        let gone: Vec<u32> = served.conns().collect();
        gone.into_iter().for_each(|id| self.end(id, Cause::Left));
        self.drop_if_over(link);
    }

    /// A link that the broker has given up goes with its last connection: until then the keeper needs it, too.
    pub(super) fn drop_if_over(&mut self, link: u32) {
        if self.links.get(&link).is_some_and(|served| served.is_over && served.conns().next().is_none()) {
            self.links.remove(&link);
            // If the keeper has ended, the next turn finds that out.
            let _ = self.custody.tell(&Msg { link, ..Msg::new(Kind::Unlink) }, None);
        }
    }
}
