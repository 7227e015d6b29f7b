//! Permitted differences. Each is documented in LIMITATIONS.md, and has here the sentence that documents it.
//!
//! Most differences that users may see are excluded by the generator, so that no rule has to permit them: `generate::kinds`,
//! `generate::bytes::with_more`, `exec::bulk`.

use super::modes::{Mode, Preloaded};
use crate::generate::EDGE;
use crate::program::{Act, ActorId, Arg, Call, Slot, Step, Watched};
use crate::trace::Line;

pub struct Rule {
    pub name: &'static str,
    /// Its sentence in LIMITATIONS.md.
    pub sentence: &'static str,
    /// Behaviour after such a difference proves nothing.
    pub ends: bool,
    holds: fn(&Context) -> bool,
}

pub struct Context<'a> {
    pub plain: &'a Line,
    pub line: &'a Line,
    pub mode: Mode,
    pub steps: &'a [Step],
    /// A connection has returned to the kernel in this run.
    pub returned: bool,
}

pub const RULES: &[Rule] = &[
    Rule {
        name: "edge-twice",
        sentence: "An edge-triggered registration can report one arrival twice",
        ends: false,
        holds: |c| changes_carrier(c) && same_but(c, without_edges) && c.line.events.len() >= c.plain.events.len(),
    },
    Rule {
        name: "edge-twice-unwritten",
        sentence: "An edge-triggered registration can report one arrival twice",
        ends: false,
        // At the second report the page is read-only.
        holds: |c| {
            (changes_carrier(c) || others_wait_in_its_set(c))
                && (c.plain.text.as_str(), c.line.text.as_str()) == ("0", "-1 EFAULT")
                && waits_in(c.steps.get(c.line.step)).is_some_and(|(_, wait)| watches_for_edges(c, wait))
        },
    },
    Rule {
        name: "acknowledged-end",
        sentence: "An edge-triggered registration of an end that is shut down reports no further event when the peer's kernel acknowledges that,",
        ends: false,
        holds: |c| c.plain.events.len() > c.line.events.len() && same_but(c, without_edges) && shuts_for_writing(c),
    },
    Rule {
        name: "order-in-little-room",
        sentence: "Between the two, the first news of a ring after the last wait has its exact place.",
        ends: true,
        // The wait has room for some of the ready events, and reports others than the kernel.
        holds: |c| {
            let full = |line: &Line| line.events.len() as u64 == room(c) && c.plain.text == line.text;
            full(c.plain) && full(c.line)
        },
    },
    Rule {
        name: "which-thread",
        sentence: "Which one of several threads that wait in one set is woken may not be the one that the kernel would choose.",
        ends: true,
        holds: |c| [c.plain, c.line].iter().any(|line| line.after.is_some()) && others_wait_in_its_set(c),
    },
    Rule {
        name: "closed-set",
        sentence: "A wait in a set that another thread closes ends with EBADF at its next wake-up.",
        ends: false,
        holds: |c| {
            c.line.after.is_some()
                && c.line.text.starts_with("-1 EBADF")
                && waits_in(c.steps.get(c.line.step)).is_some()
        },
    },
    Rule {
        name: "closed-while-watched",
        sentence: "A descriptor that is closed while another thread waits for it in `poll` or `select`",
        ends: false,
        holds: |c| {
            [c.plain, c.line].iter().any(|line| line.after.is_some() && line.text.contains("0x20"))
                || c.line.after.is_some() && c.line.text.starts_with("-1 EBADF") && selects(c)
        },
    },
    Rule {
        name: "closed-while-watched-ends",
        sentence: "The connection ends at that wake-up, while the kernel keeps it until the wait is over.",
        ends: true,
        holds: |c| tells_of_an_end(&c.line.text) && !tells_of_an_end(&c.plain.text) && closes_what_is_watched(c),
    },
    Rule {
        name: "closed-at-the-stack",
        sentence: "A descriptor that is closed while another thread waits for it in `poll` or `select`",
        ends: true,
        // The stack gives the connection back, which wakes the wait.
        holds: |c| c.mode.stacks.is_some() && c.line.after.is_some() && loses_what_it_watches(c),
    },
    Rule {
        name: "set-for-nothing",
        sentence: "A set that is watched, by another set or by `poll` or `select`, may be reported as readable once without an event",
        ends: false,
        // It wakes a thread that sleeps.
        holds: |c| c.line.after.is_some() && calls_only_sets_readable(c),
    },
    Rule {
        name: "flip-part",
        sentence: "The connection was switched by the test aid `SIDESTEP_FLIP`.",
        ends: false,
        // The send goes in parts, the first of which may go before the peer's reset is known.
        holds: |c| c.mode.flips && sent(c, c.plain) > sent(c, c.line) && sent(c, c.line) > 0,
    },
    Rule {
        name: "flip-part-received",
        sentence: "The connection was switched by the test aid `SIDESTEP_FLIP`.",
        ends: true,
        // The first part wakes a call that waits for bytes.
        holds: |c| {
            c.mode.flips && c.line.after.is_some() && received(c.plain) > received(c.line) && received(c.line) > 0
        },
    },
    Rule {
        name: "behind",
        sentence: "A call during which a connection returns to the kernel may leave bytes of the stream in the buffer",
        ends: false,
        holds: |c| changes_carrier(c) && c.line.events.is_empty() && same_but(c, |line| line.behind = false),
    },
];

/// Number of bytes that a sending call has taken; its line has nothing but a number, or the number of one message.
fn sent(c: &Context, line: &Line) -> i64 {
    let act = c.steps.get(line.step).map(|step| &step.act);
    let is_message = matches!(act, Some(Act::Call(call)) if call.name == "sendmmsg");
    let text = line.text.strip_prefix("1, message of ").filter(|_| is_message).unwrap_or(&line.text);
    text.parse().unwrap_or(0)
}

/// Number of bytes that a receiving call has returned.
fn received(line: &Line) -> i64 {
    line.text.split_once(',').and_then(|(n, _)| n.parse().ok()).unwrap_or(0)
}

/// Whether connections change their carrier during the program, or several threads may wait in one set.
fn changes_carrier(c: &Context) -> bool {
    let may = |step: &Step| matches!(step.act, Act::Fork { .. } | Act::Operator { .. } | Act::Pair { warm: false, .. });
    c.returned
        || c.mode.flips
        || c.mode.stacks.is_some()
        || c.mode.preloaded != Preloaded::Both
        || c.steps.iter().any(may)
}

/// Whether poll(2) reports sets as readable besides what the kernel reports.
fn calls_only_sets_readable(c: &Context) -> bool {
    let Some(Step { act: Act::Call(call), .. }) = c.steps.get(c.line.step) else { return false };
    let Some(Arg::Polls(list)) = call.args.first() else { return false };
    let (Some(kernel), Some(ours)) = (revents(&c.plain.text), revents(&c.line.text)) else { return false };
    let readable = i64::from(libc::POLLIN | libc::POLLRDNORM);
    kernel != ours
        && [kernel.len(), ours.len()] == [list.len(); 2]
        && list.iter().zip(kernel.iter().zip(&ours)).all(|((watched, _), (kernel, ours))| {
            kernel == ours || kernel & !ours == 0 && ours & !kernel & !readable == 0 && is_set(c, *watched)
        })
}

/// `1, revents [0x10 0x0], ...`
fn revents(text: &str) -> Option<Vec<i64>> {
    let list = text.split_once("revents [")?.1.split_once(']')?.0;
    list.split(' ').map(|word| i64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect()
}

fn is_set(c: &Context, watched: Watched) -> bool {
    let waits = |step: &Step| match (&step.act, watched) {
        (Act::Call(call), Watched::Slot(slot)) => {
            call.name.starts_with("epoll_") && call.args.first() == Some(&Arg::Fd(slot))
        }
        _ => false,
    };
    c.steps.iter().any(waits)
}

/// Whether the result of a call reports an end.
fn tells_of_an_end(answer: &str) -> bool {
    answer.starts_with("0, ") || ["ECONNRESET", "EPIPE"].iter().any(|error| answer.contains(error))
}

/// Whether a descriptor of an earlier poll or select is closed or replaced later.
fn closes_what_is_watched(c: &Context) -> bool {
    let steps = &c.steps[..c.line.step.min(c.steps.len())];
    let calls = || steps.iter().filter_map(|step| if let Act::Call(call) = &step.act { Some(call) } else { None });
    let watched = |slot: Slot| {
        calls().flat_map(|call| &call.args).any(|arg| match arg {
            Arg::Polls(list) => list.iter().any(|(watched, _)| *watched == Watched::Slot(slot)),
            Arg::Set(list) => list.contains(&slot),
            _ => false,
        })
    };
    let closes = |call: &&Call| call.name.contains("close") || call.name.contains("dup");
    calls().filter(closes).flat_map(|call| &call.args).any(|arg| matches!(arg, Arg::Fd(slot) if watched(*slot)))
}

/// Whether a slot that a poll or select waits for is filled anew before it returns.
fn loses_what_it_watches(c: &Context) -> bool {
    let Some(Step { act: Act::Call(call), .. }) = c.steps.get(c.line.step) else { return false };
    let watched = |slot: Slot| {
        call.args.iter().any(|arg| match arg {
            Arg::Polls(list) => list.iter().any(|(watched, _)| *watched == Watched::Slot(slot)),
            Arg::Set(list) => list.contains(&slot),
            _ => false,
        })
    };
    let last = c.line.after.unwrap_or(c.line.step).min(c.steps.len().saturating_sub(1));
    c.steps[c.line.step..=last].iter().any(|step| match &step.act {
        Act::Call(call) => call.into.is_some_and(watched),
        Act::Close { slot } | Act::Make { slot, .. } | Act::Listen { slot, .. } => watched(*slot),
        _ => false,
    })
}

fn selects(c: &Context) -> bool {
    let select = |step: &Step| matches!(&step.act, Act::Call(call) if call.name.contains("select"));
    c.steps.get(c.line.step).is_some_and(select)
}

/// The call of a step that waits in an epoll set, and its actor.
fn waits_in(step: Option<&Step>) -> Option<(ActorId, &Call)> {
    let step = step?;
    match &step.act {
        Act::Call(call) if call.name.starts_with("epoll_wait") || call.name.starts_with("epoll_pwait") => {
            Some((step.at, call))
        }
        _ => None,
    }
}

/// Whether the set of this wait has an edge-triggered registration.
fn watches_for_edges(c: &Context, wait: &Call) -> bool {
    let for_edges = |arg: &Arg| matches!(arg, Arg::Event { events, .. } if events & libc::EPOLLET as u32 != 0);
    let registers = |step: &Step| match &step.act {
        Act::Call(call) => {
            call.name == "epoll_ctl" && call.args.first() == wait.args.first() && call.args.iter().any(for_edges)
        }
        _ => false,
    };
    c.steps[..c.line.step.min(c.steps.len())].iter().any(registers)
}

/// Number of events for which the wait has room; 0: the call is no wait.
fn room(c: &Context) -> u64 {
    let args = waits_in(c.steps.get(c.line.step)).map(|(_, call)| call.args.as_slice()).unwrap_or_default();
    args.iter().find_map(|arg| if let Arg::Events { room } = arg { Some(u64::from(*room)) } else { None }).unwrap_or(0)
}

/// Whether another step of the same actor waits in the same set.
fn others_wait_in_its_set(c: &Context) -> bool {
    let set_of = |at: usize| waits_in(c.steps.get(at)).map(|(actor, call)| (actor, &call.args[0]));
    let at = c.line.step.max(c.plain.step);
    let last = c.line.after.max(c.plain.after).unwrap_or(at);
    set_of(at).is_some_and(|set| (0..=last.max(at)).any(|other| other != at && set_of(other).as_ref() == Some(&set)))
}

fn shuts_for_writing(c: &Context) -> bool {
    let shuts = |step: &Step| match &step.act {
        Act::Call(call) => call.name == "shutdown" && call.args.last() != Some(&Arg::Num(libc::SHUT_RD.into())),
        _ => false,
    };
    c.steps[..c.plain.step.min(c.steps.len())].iter().any(shuts)
}

/// Removes the events of edge-triggered registrations from a wait's result, which begins with the number of events.
fn without_edges(line: &mut Line) {
    let before = line.events.len().to_string();
    line.events.retain(|(data, _)| data & EDGE == 0);
    if let Some(rest) = line.text.strip_prefix(&before) {
        // Without the edge the wait may have run out of time.
        line.text = format!("{}{}", line.events.len(), rest.trim_end_matches(", in time"));
    }
}

fn same_but(c: &Context, forget: fn(&mut Line)) -> bool {
    let (mut a, mut b) = (c.plain.clone(), c.line.clone());
    [&mut a, &mut b].into_iter().for_each(forget);
    super::compare::says_the_same(&a, &b)
}

/// The rule that allows this difference.
pub fn allows(context: &Context) -> Option<&'static Rule> {
    RULES.iter().find(|rule| (rule.holds)(context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_stands_in_the_limitations() {
        let text = include_str!("../../../../LIMITATIONS.md").split_whitespace().collect::<Vec<_>>().join(" ");
        for rule in RULES {
            assert!(text.contains(rule.sentence), "{}: LIMITATIONS.md does not say '{}'", rule.name, rule.sentence);
        }
    }
}
