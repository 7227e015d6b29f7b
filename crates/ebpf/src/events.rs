//! Rare events, which the programs send through a ring buffer.

use crate::error::{Doing, Result};
use crate::layout::{self, MapData, event};
use crate::plane::REASONS;
use crate::service_pins;
use libbpf_rs::{MapHandle, RingBufferBuilder};
use sidestep_mesh::address::{Endpoint, Protocol};
use std::path::Path;
use std::time::Duration;

/// An event of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// One of [`REASONS`].
    pub reason: &'static str,
    /// The address that the program dialled or bound. For inbound connections: the sender's address and the dialled port.
    pub frontend: Endpoint,
    /// Protocol of the socket; None: neither TCP nor UDP.
    pub protocol: Option<Protocol>,
    /// Number of the Service; 0: none.
    pub service: u32,
    /// The process that made the call.
    pub pid: u32,
    /// Cookie of the network namespace.
    pub netns: u64,
    /// Identity of the peer, where policies were evaluated.
    pub identity: u32,
}

impl Event {
    fn new(from: &event) -> Option<Event> {
        Some(Event {
            reason: REASONS.get(from.reason as usize)?,
            frontend: layout::to_endpoint(&from.frontend),
            protocol: Protocol::from_number(from.protocol),
            service: from.service,
            pid: from.pid,
            netns: from.netns,
            identity: from.identity,
        })
    }
}

/// Passes every event to `take`, until `take` returns false.
pub fn follow(pins: &Path, mut take: impl FnMut(Event) -> bool) -> Result<()> {
    let path = service_pins::maps_path(pins)?.join("events");
    let map = MapHandle::from_pinned_path(&path).at("open", &path)?;
    // An event of an unknown kind is skipped.
    let each = |bytes: &[u8]| match event::from_bytes(bytes).and_then(|found| Event::new(&found)) {
        Some(event) if !take(event) => -1,
        _ => 0,
    };
    let mut builder = RingBufferBuilder::new();
    builder.add(&map, each).at("read", &path)?;
    let ring = builder.build().at("read", &path)?;
    while ring.poll(Duration::MAX).is_ok() {}
    Ok(())
}

/// What a reason means, in a sentence.
pub fn meaning(reason: &str) -> &'static str {
    match reason {
        "translated" => "a connection or flow was given a backend",
        "refused" => "a connection was refused: the Service has no endpoint that serves here",
        "backend-missing" => "a connection was refused: the tables name a backend that is not there",
        "no-storage" => "a socket could not remember its Service: getpeername(2) will name the backend",
        "flow-not-kept" => "the answer to a datagram will not be translated: the table of replies is full",
        "tuple-in-use" => "a fixed source port is connected to this backend already: another one was taken",
        "bind-refused" => "bind(2) was refused: the port belongs to a Service",
        "captured-outbound" => "a connection of a captured pod went to its proxy",
        "captured-inbound" => "the proxy's connection to its own pod went to its port for what comes in",
        "captured-dns" => "a question to a name server went to the proxy",
        "not-captured" => "the rules of a captured pod let a connection pass",
        "no-route" => "a connection was refused: the pod has no route there, so that there is nothing to capture",
        "source-not-kept" => {
            "the proxy sees 127.0.0.1 or ::1 as the source of a connection: its own could not be bound"
        }
        "way-not-kept" => "a connection will be refused: the table of what was dialled is full",
        "accepted" => "the proxy was told what was dialled",
        "listener-not-kept" => "the proxy has more listeners than are remembered: some of them get no connections",
        "listener-of-others" => {
            "somebody who is not the proxy listens at its port: nothing that comes in is given to that socket"
        }
        "refused-inside" => "a connection to the proxy's port was refused: what was dialled is not known",
        "without-proxy" => "nobody listens at the proxy's port: what came in was refused, or passed if that is wanted",
        "policy-denied-out" => "a pod's call was refused: its policies forbid the destination",
        "policy-denied-in" => "what was sent to a pod was turned away: its policies forbid the sender",
        "policy-would-deny-out" => "a pod's call was let through, which a policy in dry run would forbid",
        "policy-would-deny-in" => "what was sent to a pod was let in, which a policy in dry run would forbid",
        "bypassed-outbound" => "a connection went around the client's proxy: the Service needs none",
        "bypassed-inbound" => "a connection went around the server's proxy: the Service needs none",
        "bypass-refused" => {
            "a connection went through a proxy though the Service needs none: one of the pods requires it"
        }
        "source-routed" => {
            "a source route was refused: it leads elsewhere than to the address that rules are asked about"
        }
        "source-forged" => "a packet was dropped: its source address is not the sender's, or is the receiver's own",
        "not-admitted-out" => {
            "a call was refused: the node is armed, and the agent has not admitted this network namespace"
        }
        "not-admitted-in" => {
            "what was sent to a network namespace was dropped: the node is armed, and the agent has not admitted it"
        }
        "too-many-pending" => "a connection was refused: the pod has 4096 under way to its proxy already",
        "conversation-not-kept" => {
            "the answer to a datagram will be denied: the pod has no table of those that it waits for"
        }
        "not-watched" => "a connection was not counted: there are more pairs of pods and Services than are counted",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_sentence() {
        let sentences: std::collections::BTreeSet<_> = REASONS.iter().map(|reason| meaning(reason)).collect();
        assert!(sentences.len() == REASONS.len() && !sentences.contains(""), "{sentences:?}");
    }
}
