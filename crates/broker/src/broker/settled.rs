//! Members that want to know when what they have sent has been worked off: a test then depends on no timing.

use super::Broker;
use crate::receiver::message::Command;
use sidestep_abi::msg::{Kind, Msg};

impl Broker {
    /// Threads of a member may ask one after the other and be heard the other way round.
    pub(super) fn settle_asked(&mut self, id: u64, number: u64) {
        let asked = self.unsettled.entry(id).or_insert(number);
        *asked = number.max(*asked);
    }

    /// For those of whom nothing is under way. To be called when all that has been said so far has been sent. Their
    /// receivers are asked last: they may have sockets to let go.
    pub(super) fn ask_receivers_of_settled(&mut self) {
        let settled: Vec<_> = self.unsettled.keys().copied().filter(|&id| !self.is_under_way(id)).collect();
        for id in settled {
            if let Some(number) = self.unsettled.remove(&id) {
                self.command(id, Command::Answer { id, number });
            }
        }
    }

    pub(super) fn answered(&mut self, id: u64, number: u64) {
        self.queue(id, Msg { arg: number, ..Msg::new(Kind::Settled) }, None);
    }

    /// An offer of the member is being proved, a link of its is being opened, or its peers are to get a doorbell.
    fn is_under_way(&self, id: u64) -> bool {
        let is_proving = self.proving_of(id).next().is_some();
        let is_ringing = |member: &super::Member| member.ringers_due > 0;
        let is_opening = |member: &super::Member| member.links.iter().any(|link| self.openings.contains_key(link));
        is_proving || self.member(id).is_some_and(|member| is_ringing(member) || is_opening(member))
    }
}
