//! What the broker tells the worker: connections that may be taken, and the programs' links.

use super::Worker;
use crate::cause::Cause;
use crate::error::{Error, failed};
use crate::link::{Link, Served};
use crate::program::Program;
use crate::record::{Ends, Record};
use crate::stage::Conn;
use crate::subject::Subject;
use rustix::fd::{AsFd, OwnedFd};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::wire::Incoming;
use sidestep_error::chain;
use sidestep_ring::page;

impl Worker {
    pub(super) fn hear_broker(&mut self) -> Result<bool, Error> {
        let mut has_heard = false;
        loop {
            match self.control.receive() {
                Incoming::Empty => return Ok(has_heard),
                Incoming::End => return Err(Error::BrokerGone),
                Incoming::Garbage { .. } => {}
                Incoming::Record(record) => self.hear(&record.msg, record.fd)?,
            }
            has_heard = true;
        }
    }

    fn hear(&mut self, msg: &Msg, fd: Option<OwnedFd>) -> Result<(), Error> {
        match (msg.kind(), fd) {
            (Some(Kind::Reject), _) => return Err(Error::Rejected(msg.arg)),
            (Some(Kind::Welcome), Some(page)) => self.control.welcomed(&page).map_err(failed("map the page"))?,
            (Some(Kind::Foreign), Some(socket)) => self.shown(msg.arg, socket),
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
                if let Some(subject) = self.wanted.remove(&msg.offer) {
                    self.closing.close(subject.socket);
                }
            }
            (Some(Kind::Unlink), None) => {
                self.unlinked(msg.link);
                self.custody.tell(msg, None).map_err(Error::KeeperGone)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn shown(&mut self, number: u64, socket: OwnedFd) {
        self.count(page::count_seen);
        let (choice, devices) = (&self.settings.choice, self.indices());
        let examined = Subject::examine(socket, choice, &devices, self.namespace, &mut self.closing);
        let declined = match examined {
            Ok(subject) => {
                self.wanted.insert(number, subject);
                None
            }
            Err(why) => {
                self.totals.declined += 1;
                self.say(&format!("not taken: {}", chain(&why)));
                let reason = why.reason();
                self.count(|page| page::count_reason(page, reason));
                Some(reason)
            }
        };
        self.control.answer(number, declined);
    }

    /// Of the devices that the stack was given.
    pub(super) fn indices(&self) -> Vec<u32> {
        self.devices.iter().map(sidestep_device::Device::index).collect()
    }

    fn assigned(&mut self, msg: &Msg) -> Result<(), Error> {
        let (place, slot) = ((msg.link, msg.side, msg.slot), msg.slot as usize);
        let (subject, served) = (self.wanted.remove(&msg.offer), self.links.get_mut(&msg.link));
        let (subject, served, number) = match (subject, served, self.free.pop()) {
            (Some(subject), Some(served), Some(number)) => (subject, served, number),
            (subject, _, number) => {
                self.free.extend(number);
                if let Some(subject) = subject {
                    self.closing.close(subject.socket);
                }
                self.control.release(place);
                return Ok(());
            }
        };
        self.custody.hold(number, place, subject.socket.as_fd()).map_err(Error::KeeperGone)?;
        let record = Record::new(self.ledger.clone(), number);
        record.assign(&Ends { local: subject.local, remote: subject.remote });
        served.set_conn(slot, Some(number));
        let program = Program::new(served.link.clone(), slot);
        program.set_socket_held(true);
        self.conns[number as usize] = Some(Conn::new(subject, place, program, record));
        self.due.insert(number);
        Ok(())
    }

    /// The program has ended, and the broker gives its link up.
    fn unlinked(&mut self, link: u32) {
        let gone: Vec<u32> = self.links.get(&link).map(|served| served.conns().collect()).unwrap_or_default();
        gone.into_iter().for_each(|id| self.end(id, Cause::Left));
        self.links.remove(&link);
    }
}
