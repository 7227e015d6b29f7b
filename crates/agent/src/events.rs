//! Logs rare events of the kernel half: at most one line a second for each kind.

use crate::message::Message;
use crate::view::View;
use crate::words;
use sidestep_ebpf::error::Result;
use sidestep_ebpf::events::{self, Event};
use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::Sender;

/// Passes on each event, until the receiver has gone.
pub fn follow(pins: &Path, inbox: &Sender<Message>) -> Result<()> {
    let is_wanted = |event| inbox.send(Message::Event(event)).is_ok();
    events::follow(pins, is_wanted)
}

/// Kinds that are logged in a second; the others are only counted.
const LINES: usize = 20;

/// The kind of an event: for policies the pair of ends, for all others the Service.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    reason: &'static str,
    service: u32,
    /// {network namespace, identity of the peer}
    ends: Option<(u64, u32)>,
}

/// Events since the last lines.
#[derive(Default)]
pub struct Digest {
    kinds: HashMap<Kind, (u64, Option<Event>)>,
    /// Events of kinds for which there was no room.
    others: u64,
}

fn is_of_policy(reason: &str) -> bool {
    reason.starts_with("policy-")
}

impl Digest {
    pub fn add(&mut self, event: Event) {
        let ends = is_of_policy(event.reason).then_some((event.netns, event.identity));
        let kind = Kind { reason: event.reason, service: event.service, ends };
        if self.kinds.len() >= LINES && !self.kinds.contains_key(&kind) {
            self.others += 1;
            return;
        }
        let (count, last) = self.kinds.entry(kind).or_default();
        *count += 1;
        *last = Some(event);
    }

    pub fn log(&mut self, view: &View) {
        for (kind, (count, last)) in self.kinds.drain() {
            let Some(event) = last else { continue };
            if is_of_policy(kind.reason) {
                log_decision(view, &event, count);
            } else {
                log(view, &event, count);
            }
        }
        match std::mem::take(&mut self.others) {
            0 => {}
            count => tracing::info!(count, "more events than are told one by one: `sidestep_events_total` counts them"),
        }
    }
}

fn log(view: &View, event: &Event, count: u64) {
    let ports = view.reconciler.ports();
    let service = ports.iter().find(|port| port.service == event.service).map(|port| port.key.to_string());
    tracing::info!(
        reason = event.reason,
        count,
        service = %service.unwrap_or_else(|| "no Service".into()),
        capture = view.pods.of(event.netns).map(|capture| capture.name.to_string()),
        to = %event.frontend,
        pid = event.pid,
        netns = event.netns,
        "{}",
        events::meaning(event.reason)
    );
}

/// Names both ends: the pod whose policies decide, and the peer.
fn log_decision(view: &View, event: &Event, count: u64) {
    let identity = view.policing.identities.name(event.identity);
    let pod = view.pods.pod_of(event.netns).map(ToString::to_string);
    tracing::info!(
        reason = event.reason,
        count,
        pod = %pod.unwrap_or_else(|| "not known any more".into()),
        peer = %words::numbered(event.identity, identity),
        at = %event.frontend,
        protocol = event.protocol.map(|protocol| protocol.to_string()),
        pid = event.pid,
        netns = event.netns,
        "{}",
        events::meaning(event.reason)
    );
}
