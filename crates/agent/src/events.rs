//! Logs rare events of the kernel half: at most one line a second for each kind.

use crate::message::Message;
use crate::view::View;
use crate::words;
use sidestep_ebpf::error::Result;
use sidestep_ebpf::events::{self, Event};
use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts each event, until the receiver has gone.
pub fn follow(pins: &Path, counted: &Counted, inbox: &Sender<Message>) -> Result<()> {
    events::follow(pins, |event| counted.add(event, inbox))
}

/// Events that are counted in one thread and logged in another. Pods can cause millions of them while that one is busy: so many
/// messages would fill the memory.
#[derive(Clone, Default)]
pub struct Counted(Arc<Mutex<Digest>>);

impl Counted {
    /// The first event since [`Counted::take`] is told to the receiver. False: it has gone.
    fn add(&self, event: Event, inbox: &Sender<Message>) -> bool {
        let mut digest = self.lock();
        let is_first = digest.is_empty();
        digest.add(event);
        !is_first || inbox.send(Message::Events).is_ok()
    }

    /// What has been counted since the last time.
    pub fn take(&self) -> Digest {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Digest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    fn add(&mut self, event: Event) {
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

    pub fn log(self, view: &View) {
        for (kind, (count, last)) in self.kinds {
            let Some(event) = last else { continue };
            if is_of_policy(kind.reason) {
                log_decision(view, &event, count);
            } else {
                log(view, &event, count);
            }
        }
        match self.others {
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

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_mesh::address::Endpoint;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::mpsc::channel;

    fn denied(netns: u64) -> Event {
        Event {
            reason: "policy-denied-out",
            frontend: Endpoint { address: IpAddr::from(Ipv4Addr::LOCALHOST).into(), port: 80 },
            protocol: None,
            service: 0,
            pid: 1,
            netns,
            identity: 16,
        }
    }

    #[test]
    fn a_million_events_that_nobody_takes_are_one_message_and_a_few_lines() {
        const ALL: u64 = 1_000_000;
        let (inbox, messages) = channel();
        let counted = Counted::default();
        assert!((0..ALL).all(|n| counted.add(denied(n % 100), &inbox)));
        assert_eq!(messages.try_iter().count(), 1);
        let digest = counted.take();
        assert_eq!(digest.kinds.len(), LINES);
        assert_eq!(digest.kinds.values().map(|(count, _)| count).sum::<u64>() + digest.others, ALL);
        // The next one is told again, as long as there is somebody.
        assert!(counted.add(denied(0), &inbox) && counted.add(denied(0), &inbox));
        assert_eq!(messages.try_iter().count(), 1);
        counted.take();
        drop(messages);
        assert!(!counted.add(denied(0), &inbox));
    }
}
