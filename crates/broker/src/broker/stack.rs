//! The stack: the member that carries connections to other hosts. It has joined by the operator's socket.
//!
//! An offer without another end on this host waits, and its socket is shown to the stack. If the stack carries the connection,
//! both get a slot, as the two ends of a local connection do.

use super::Broker;
use super::pair::End;
use crate::domain::{Domain, Key, Scope};
use crate::matching::{Offer, Ticket};
use crate::outbox::Attached;
use crate::proof::SocketFacts;
use crate::quota::{Account, Budget, Permit};
use crate::receiver::loan::Loan;
use crate::status::{Reasons, Totals};
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Default)]
pub struct Stack {
    /// The member. None: there is no stack.
    pub member: Option<u64>,
    next: u64,
    /// Questions that the stack has not answered, by their number.
    open: BTreeMap<u64, Question>,
    /// What each domain holds of them. A domain whose last member leaves keeps its account for as long as a question is open:
    /// otherwise it would get another share each time that it joins again.
    accounts: HashMap<Domain, Arc<Account>>,
    /// Counters of stacks that have ended.
    pub gone: (Totals, Reasons),
}

/// Whether the stack carries the connection of this offer.
struct Question {
    ticket: Ticket,
    domain: Domain,
    _permit: Permit,
}

impl Stack {
    /// The number of a new question about an offer of this domain. None: the domain has enough open questions.
    fn ask(&mut self, ticket: Ticket, domain: Domain, budget: &Arc<Budget>) -> Option<u64> {
        let account = self.accounts.entry(domain).or_insert_with(|| Account::new(budget));
        let Some(permit) = account.claim(1) else {
            self.forget_unused(domain);
            return None;
        };
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Question { ticket, domain, _permit: permit });
        Some(number)
    }

    /// The question of this number has its answer. Returns the offer that it is about.
    fn close(&mut self, number: u64) -> Option<Ticket> {
        let Question { ticket, domain, .. } = self.open.remove(&number)?;
        self.forget_unused(domain);
        Some(ticket)
    }

    /// Nobody answers the open questions any more.
    fn close_all(&mut self) {
        self.open.clear();
        self.accounts.clear();
    }

    fn forget_unused(&mut self, domain: Domain) {
        if self.accounts.get(&domain).is_some_and(|account| account.held() == 0) {
            self.accounts.remove(&domain);
        }
    }
}

impl Broker {
    /// A new member that has come by the operator's socket is the stack, in place of an earlier one. Offers that wait are made
    /// again, and then shown to it.
    pub(super) fn may_be_stack(&mut self, id: u64) {
        if self.is_or_was_stack(id) {
            self.stack.member = Some(id);
            self.stack.close_all();
            let shown: Vec<Ticket> = self
                .matcher
                .all_waiting()
                .filter(|offer| self.concerns_stack(offer))
                .map(|offer| offer.ticket)
                .collect();
            for ticket in shown {
                if let Some(offer) = self.matcher.withdraw(ticket) {
                    self.ask_again(&offer);
                }
            }
        }
    }

    pub(super) fn is_stack(&self, id: u64) -> bool {
        self.stack.member == Some(id)
    }

    /// Whether the member is the stack, or an earlier one that has not ended yet.
    pub(super) fn is_or_was_stack(&self, id: u64) -> bool {
        self.scope_of(id) == Scope::Operator
    }

    /// The member `id` is gone.
    pub(super) fn lose_stack(&mut self, id: u64) {
        if self.is_stack(id) {
            self.stack.member = None;
            self.stack.close_all();
        }
    }

    /// Whether the stack is to be asked about an offer without another end here.
    pub(super) fn concerns_stack(&self, offer: &Offer) -> bool {
        let SocketFacts { local, remote, space, .. } = &offer.facts;
        let may_be_far = !remote.is_loopback() && local != remote && space.pod.is_none();
        self.stack.member.is_some() && !offer.passive && may_be_far
    }

    /// The receiver has lent the socket of an offer that waits.
    pub(super) fn show_to_stack(&mut self, ticket: Ticket, socket: Loan) {
        let Some(stack) = self.stack.member.filter(|_| self.matcher.contains(ticket)) else {
            return;
        };
        let Scope::Domain(domain) = self.scope_of(ticket.member) else { return };
        let Some(number) = self.stack.ask(ticket, domain, &self.budgets.questions) else { return };
        let question = Key::from(domain).put_into(Msg { arg: number, ..Msg::new(Kind::Foreign) });
        self.queue(stack, question, Some(Attached::Socket(socket)));
    }

    /// The stack carries the connection, or does not. If the offer no longer waits, the stack gets [`Kind::Refused`].
    pub(super) fn stack_answers(&mut self, id: u64, msg: &Msg) {
        if !self.is_stack(id) {
            return self.violation(id);
        }
        let ticket = self.stack.close(msg.arg);
        if msg.arg2 != 0 {
            return self.declined(ticket, u8::try_from(msg.arg2).ok().and_then(Reason::from_code));
        }
        let stack = Ticket { member: id, offer: msg.arg };
        let Some(offer) = ticket.and_then(|ticket| self.matcher.withdraw(ticket)) else {
            return self.refuse(stack, Reason::Short);
        };
        self.waiting.remove(&offer.ticket);
        // The stack has no socket of its own; no cookie of a socket is that large.
        let far = End { ticket: stack, cookie: u64::MAX - msg.arg, ..End::of(&offer) };
        if let Err(reason) = self.connect([End::of(&offer), far]) {
            self.refuse(offer.ticket, reason);
            self.refuse(stack, reason);
        }
    }

    /// The offer goes on waiting, for an end on this host.
    fn declined(&mut self, ticket: Option<Ticket>, reason: Option<Reason>) {
        if let Some(pending) = ticket.and_then(|ticket| self.waiting.get_mut(&ticket)) {
            pending.declined = reason;
        }
    }
}
