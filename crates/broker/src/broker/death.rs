//! The end of a member: its offers are removed, and the directions that it read return to the kernel.

use super::Broker;
use super::report;
use crate::link::{Released, Side};
use crate::receiver::message::Command;
use rustix::net::Shutdown;

/// If a thread of the broker cannot end, the kernel keeps all descriptors open. The shutdown makes the end visible to members
/// anyway.
impl Drop for Broker {
    fn drop(&mut self) {
        for conn in self.conns.values() {
            let _ = rustix::net::shutdown(&conn.socket, Shutdown::Both); // the other end may be gone already
        }
    }
}

impl Broker {
    /// Removes a connection whose other end is gone.
    pub(super) fn bury(&mut self, id: u64) {
        if let Some(member) = self.member(id) {
            let (totals, reasons) = self.counters(id, member);
            let links = member.links.clone();
            let (all, of_each) = if self.is_or_was_stack(id) { &mut self.stack.gone } else { &mut self.gone };
            all.add(&totals);
            report::add_reasons(of_each, &reasons);
            let scope = self.scope_of(id);
            self.pods.left(id, scope, &totals);
            self.remove_offers(id);
            let lives = self.outlives_us(id);
            let shares: Vec<_> = links.into_iter().flat_map(|link| self.leave(link, id, lives)).collect();
            if !shares.is_empty() {
                self.cut_off(id, shares);
            }
        }
        self.lose_stack(id);
        self.dirty.remove(&id);
        if let Some(conn) = self.conns.remove(&id) {
            self.poller.remove(&conn.socket);
            if let Some(receiver) = self.receivers.get_mut(&conn.scope) {
                receiver.connections -= 1;
                receiver.mailbox.send(Command::Dismiss { id });
            }
        }
    }

    /// The member `id` is gone. Ends every direction that it read at the present position, and makes the other side look. If
    /// the process lives, returns the link and side of every connection that it still uses.
    fn leave(&mut self, link_id: u32, id: u64, lives: bool) -> Vec<(u32, usize)> {
        let Some(link) = self.links.get_mut(&link_id) else {
            return Vec::new();
        };
        let (members, slots) = (link.members, link.slots());
        let sides = (0..2).filter(|&side| members[side] == id);
        for side in sides.clone() {
            let uses_it = lives && link.connections().any(|(_, connection)| !connection.released[side]);
            link.sides[side] = if uses_it { Side::CutOff } else { Side::Gone };
        }
        for side in sides.clone() {
            for &slot in &slots {
                self.leave_slot(link_id, slot, side);
            }
        }
        // The survivor need not wait for eventfds that ring the dead member.
        self.open(link_id);
        self.drop_if_done(link_id);
        let uses_it = |side: &usize| self.links.get(&link_id).is_some_and(|link| link.sides[*side] == Side::CutOff);
        sides.filter(uses_it).map(|side| (link_id, side)).collect()
    }

    fn leave_slot(&mut self, link_id: u32, slot: usize, side: usize) {
        let Some(link) = self.links.get_mut(&link_id) else {
            return;
        };
        let Some(connection) = link.connection(slot).filter(|c| !c.released[side]) else {
            return;
        };
        self.upgraded.remove(&connection.cookies[side]);
        self.given.remove(&connection.tickets[side]);
        link.freeze(slot, side);
        // The dead member may have been sending in the survivor's place.
        link.half(slot, 1 - side).has_sent();
        // The survivor must look in any case: the dead member may have frozen its direction and died before ringing.
        match link.release(slot, side) {
            Released::Half => self.wake(link_id, slot, 1 - side),
            Released::Whole(hole) => self.punch(link_id, hole),
            Released::Nothing => {}
        }
    }
}
