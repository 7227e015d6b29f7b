//! The status. It shows values that members have written into shared memory. No decision depends on these.

use super::Broker;
use super::conn::Member;
use crate::link::{Connection, Link};
use crate::matching::Offer;
use crate::outbox::Attached;
use crate::status::{self, Carrier, Counts, Direction, Reasons, Status, Strangers, Totals};
use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_abi::page::Page;
use sidestep_abi::{Reason, VERSION};
use sidestep_ring::{counters, page, slot};
use std::io::{BufWriter, Seek};
use std::sync::Arc;

impl Broker {
    pub(super) fn send_status(&mut self, id: u64) {
        if !self.conns.contains_key(&id) {
            return;
        }
        let status = self.status();
        match as_memfd(&status) {
            Ok(fd) => {
                let done = Msg { arg: status.counted().connections, ..Msg::new(Kind::Done) };
                self.queue(id, done, Some(Attached::File(Arc::new(fd))));
            }
            Err(_) => self.violation(id),
        }
    }

    /// All that `sidestep status` shows. Everything is counted, and of each kind only some are listed.
    pub fn status(&self) -> Status {
        let mut links: Vec<_> = self.links.values().collect();
        links.sort_by_key(|link| link.id);
        let mut status = Status {
            version: VERSION,
            address: self.settings.address.clone(),
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
            hold: self.hold_all,
            counts: Some(Counts::default()),
            waiting_offers: self.matcher.len() as u64,
            waiting: self.matcher.all_waiting().take(Status::MOST).map(|offer| self.waiting_offer(offer)).collect(),
            refused: self.refused.clone(),
            strangers: self.strangers.iter().map(|(&uids, &connections)| Strangers { uids, connections }).collect(),
            ..Status::default()
        };
        self.report_processes(&mut status);
        self.report_links(&links, &mut status);
        self.report_connections(&links, &mut status);
        status
    }

    /// Living and ended members, and the stack.
    fn report_processes(&self, status: &mut Status) {
        (status.totals, status.reasons) = self.gone.clone();
        (status.stack.totals, status.stack.reasons) = self.stack.gone.clone();
        self.pods.report(status);
        status.stack.pid = self.stack.member.and_then(|id| self.member(id)).map(|member| member.pid);
        let mut ids: Vec<_> = self.conns.keys().copied().collect();
        ids.sort_unstable();
        for process in ids.into_iter().filter_map(|id| self.process(id)) {
            let (totals, reasons) = if self.is_or_was_stack(process.member) {
                (&mut status.stack.totals, &mut status.stack.reasons)
            } else {
                (&mut status.totals, &mut status.reasons)
            };
            totals.add(&process.totals);
            add_reasons(reasons, &process.reasons);
            if let Some(of_pod) = self.pods.place(process.member, self.scope_of(process.member), status) {
                of_pod.add(&process.totals);
            }
            counts(status).processes += 1;
            list(&mut status.processes, || process);
        }
        add_reasons(&mut status.reasons, &status.stack.reasons);
    }

    fn report_links(&self, links: &[&Link], status: &mut Status) {
        for link in links.iter().map(|link| self.link(link)) {
            counts(status).links += 1;
            counts(status).link_memory_bytes += link.memory_bytes;
            list(&mut status.links, || link);
        }
    }

    fn report_connections(&self, links: &[&Link], status: &mut Status) {
        for link in links {
            let by_ring = self.by_ring(link);
            for (number, connection) in link.connections() {
                let carriers = [0, 1].map(|d| carrier(link, number, d, by_ring));
                counts(status).connections += 1;
                carriers.into_iter().for_each(|carrier| counts(status).directions.add(carrier));
                status.stack.carries += u64::from(carriers == [Carrier::Stack; 2]);
                list(&mut status.connections, || self.connection(link, number, connection));
            }
        }
    }

    fn waiting_offer(&self, offer: &Offer) -> status::Waiting {
        let pending = self.waiting.get(&offer.ticket);
        status::Waiting {
            pid: self.member(offer.ticket.member).map_or(0, |member| member.pid),
            local: offer.facts.local.to_string(),
            remote: offer.facts.remote.to_string(),
            passive: offer.passive,
            declined: pending.and_then(|pending| pending.declined).map(|reason| reason.name().into()),
        }
    }

    /// These users' connection stays on the kernel.
    pub(super) fn note_strangers(&mut self, mut uids: [u32; 2]) {
        uids.sort_unstable();
        if self.strangers.contains_key(&uids) || self.strangers.len() < Strangers::MOST {
            *self.strangers.entry(uids).or_default() += 1;
        }
    }

    pub(super) fn count_refused(&mut self, reason: Reason) {
        *self.refused.entry(reason.name().into()).or_default() += 1;
    }

    fn process(&self, id: u64) -> Option<status::Process> {
        let member = self.member(id)?;
        let Member { pid, exe, hold, .. } = member;
        let (totals, reasons) = self.counters(id, member);
        let uid = self.conns.get(&id)?.peer.uid;
        let earlier_connections = page::earlier(member.page.get()).into();
        let exe = exe.clone();
        Some(status::Process { pid: *pid, exe, uid, member: id, totals, reasons, hold: *hold, earlier_connections })
    }

    /// The counters of a member. The bytes of a connection are in its slot until the slot is released, then in the member's
    /// page.
    pub(super) fn counters(&self, id: u64, member: &Member) -> (Totals, Reasons) {
        let (mut totals, reasons) = page_counters(member.page.get());
        for link in member.links.iter().filter_map(|link| self.links.get(link)) {
            for (slot, connection) in link.connections() {
                for side in (0..2).filter(|&side| link.members[side] == id && !connection.released[side]) {
                    totals.add(&slot_counters(link, slot, side));
                }
            }
        }
        (totals, reasons)
    }

    fn pids(&self, link: &Link) -> [u32; 2] {
        link.members.map(|id| self.member(id).map_or(0, |member| member.pid))
    }

    fn link(&self, link: &Link) -> status::Link {
        status::Link {
            id: link.id,
            pids: self.pids(link),
            slots_used: link.connections().count() as u64,
            ring_size: link.mem.ring_size() as u64,
            memory_bytes: rustix::fs::fstat(&link.memory).map_or(0, |stat| stat.st_blocks as u64 * 512),
        }
    }

    /// What carries a direction of this link's connections while a ring is in use.
    fn by_ring(&self, link: &Link) -> Carrier {
        if link.members.iter().any(|id| self.is_stack(*id)) { Carrier::Stack } else { Carrier::Ring }
    }

    fn connection(&self, link: &Link, number: usize, connection: &Connection) -> status::Connection {
        let (pids, by_ring) = (self.pids(link), self.by_ring(link));
        status::Connection {
            id: format!("{}.{number}", link.id),
            pids,
            local: connection.local.to_string(),
            remote: connection.remote.to_string(),
            hold: slot::is_held(link.mem.slot(number)),
            directions: [0, 1].map(|d| direction(link, number, d, pids, by_ring)),
        }
    }
}

fn counts(status: &mut Status) -> &mut Counts {
    status.counts.get_or_insert_default()
}

/// Adds to a list that is not too long yet.
fn list<T>(to: &mut Vec<T>, one: impl FnOnce() -> T) {
    if to.len() < Status::MOST {
        to.push(one());
    }
}

/// `by_ring`: the carrier while a ring is in use.
fn carrier(link: &Link, slot: usize, d: usize, by_ring: Carrier) -> Carrier {
    if link.half(slot, d).read_to().is_some() { by_ring } else { Carrier::Kernel }
}

/// `by_ring`: the carrier while a ring is in use.
fn direction(link: &Link, slot: usize, d: usize, pids: [u32; 2], by_ring: Carrier) -> Direction {
    let half = link.half(slot, d);
    let counted = counters::load(&link.mem.slot(slot).counters[d]);
    let read_to = half.read_to();
    Direction {
        from_pid: pids[d],
        to_pid: pids[1 - d],
        carrier: if read_to.is_some() { by_ring } else { Carrier::Kernel },
        ring_bytes: counted.ring_tx,
        kernel_bytes: counted.kernel_tx,
        stretch: half.epoch(),
        written_to: half.tail(),
        read_to,
        reason: (counted.reason != 0).then(|| reason_name(counted.reason as usize)),
    }
}

/// Bytes that `side` has sent and received on one connection so far.
fn slot_counters(link: &Link, slot: usize, side: usize) -> Totals {
    let counters::Counted { kernel_tx, kernel_rx, ring_tx, ring_rx, .. } =
        counters::load(&link.mem.slot(slot).counters[side]);
    Totals { kernel_tx, kernel_rx, ring_tx, ring_rx, ..Totals::default() }
}

/// The counters of one member's page.
fn page_counters(page: &Page) -> (Totals, Reasons) {
    let page::Counted { seen, upgraded, returned, ring_rx, ring_tx, kernel_rx, kernel_tx } = page::totals(page);
    let reasons = page::reasons(page).filter(|&(_, n)| n != 0).map(|(code, n)| (reason_name(code), n)).collect();
    (Totals { seen, upgraded, returned, ring_rx, ring_tx, kernel_rx, kernel_tx }, reasons)
}

pub(super) fn add_reasons(to: &mut Reasons, from: &Reasons) {
    for (name, n) in from {
        let count = to.entry(name.clone()).or_default();
        *count = count.saturating_add(*n);
    }
}

fn reason_name(code: usize) -> String {
    let reason = u8::try_from(code).ok().and_then(Reason::from_code);
    reason.map_or_else(|| format!("code-{code}"), |reason| reason.name().into())
}

/// Written piece by piece: the text is in memory once.
fn as_memfd(status: &Status) -> std::io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("sidestep-status", MemfdFlags::CLOEXEC)?;
    let mut writer = BufWriter::new(std::fs::File::from(fd));
    serde_json::to_writer(&mut writer, status)?;
    let mut file = writer.into_inner()?;
    file.rewind()?;
    Ok(file.into())
}
