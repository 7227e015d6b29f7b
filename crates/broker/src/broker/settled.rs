//! Answers members that ask when everything they have sent is handled. With these answers tests need no timing.

use super::Broker;
use crate::receiver::message::Command;
use sidestep_abi::msg::{Kind, Msg};

impl Broker {
    /// Threads of a member may send their numbers in another order than they drew them, so the largest counts.
    pub(super) fn settle_asked(&mut self, id: u64, number: u64) {
        let asked = self.unsettled.entry(id).or_insert(number);
        *asked = number.max(*asked);
    }

    /// Sends the question on for those members that have nothing under way. Called once all queued records have been sent. The
    /// receivers are asked last, since they may have sockets to let go of.
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

    /// Whether an offer of the member is being proved, one of its links is being opened, or an eventfd for one of its doorbells
    /// is due.
    fn is_under_way(&self, id: u64) -> bool {
        let is_proving = self.proving_of(id).next().is_some();
        let is_ringing = |member: &super::Member| member.ringers_due > 0;
        let is_opening = |member: &super::Member| member.links.iter().any(|link| self.openings.contains_key(link));
        is_proving || self.member(id).is_some_and(|member| is_ringing(member) || is_opening(member))
    }
}
