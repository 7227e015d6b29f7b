//! The end of a member: its offers go, and what it read returns to the kernel.

use super::Broker;
use super::report;
use crate::link::Released;

impl Broker {
    /// Forgets a connection whose other end is gone.
    pub(super) fn bury(&mut self, id: u64) {
        if let Some(member) = self.member(id) {
            let (totals, reasons) = self.counters(id, member);
            let links = member.links.clone();
            self.gone.0.add(&totals);
            report::add_reasons(&mut self.gone.1, &reasons);
            self.matcher.forget_member(id);
            for link in links {
                self.leave(link, id);
            }
        }
        self.dirty.remove(&id);
        self.conns.remove(&id);
    }

    /// `id` is dead: every direction that it read ends where it is, and the other side is told to look.
    fn leave(&mut self, link_id: u32, id: u64) {
        let Some(link) = self.links.get_mut(&link_id) else {
            return;
        };
        let (members, slots) = (link.members, link.slots());
        let sides = (0..2).filter(|&side| members[side] == id);
        sides.clone().for_each(|side| link.dead[side] = true);
        for side in sides {
            for &slot in &slots {
                self.leave_slot(link_id, slot, side);
            }
        }
        self.drop_if_done(link_id);
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
        // The survivor looks in any case: the dead may have frozen its direction and died before ringing.
        if link.release(slot, side) == Released::Half {
            self.wake(link_id, slot, 1 - side);
        }
    }
}
