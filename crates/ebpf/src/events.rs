//! Rare events, which the programs send through a ring buffer.

use crate::error::{Doing, Result};
use crate::layout::{self, MapData, event};
use crate::plane::REASONS;
use crate::service_pins;
use libbpf_rs::{MapHandle, RingBufferBuilder};
use sidestep_mesh::address::{Endpoint, Protocol};
use std::cell::Cell;
use std::io;
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
    let is_over = Cell::new(false);
    // An event of an unknown kind is skipped.
    let each = |bytes: &[u8]| {
        let event = event::from_bytes(bytes).and_then(|found| Event::new(&found));
        is_over.set(event.is_some_and(|event| !take(event)));
        -i32::from(is_over.get())
    };
    let mut builder = RingBufferBuilder::new();
    builder.add(&map, each).at("read", &path)?;
    let ring = builder.build().at("read", &path)?;
    loop {
        let polled = ring.poll_raw(Duration::MAX);
        if is_over.get() {
            return Ok(());
        }
        // A process that is stopped and goes on interrupts the wait, without any handler of a signal.
        if polled < 0 && polled != -libc::EINTR {
            return Err(io::Error::from_raw_os_error(-polled)).at("read", &path);
        }
    }
}

/// What a reason means, in a sentence.
pub fn meaning(reason: &str) -> &'static str {
    match reason {
        "translated" => "a connection or flow was given a backend",
        "refused" => "a connection was refused: the Service has no endpoint that serves here",
        "backend-missing" => "a connection was refused: the tables name a backend that does not exist",
        "no-storage" => "there was no memory to keep a socket's Service: getpeername(2) will return the backend",
        "flow-not-kept" => "the answer to a datagram will not be translated: the table of replies is full",
        "tuple-in-use" => "a bound source port is already connected to the chosen backend: another backend was taken",
        "bind-refused" => "bind(2) was refused: the port belongs to a Service",
        "captured-outbound" => "a connection of a captured pod went to its proxy",
        "captured-inbound" => "the proxy's connection to its own pod went to the proxy's inbound port",
        "captured-dns" => "a DNS query went to the proxy",
        "not-captured" => "the rules of a captured pod do not capture a connection",
        "no-route" => "a connection was refused: the pod has no route to its destination",
        "source-not-kept" => {
            "the proxy sees 127.0.0.1 or ::1 as the source of a connection: its own could not be bound"
        }
        "orig-dst-not-stored" => "a connection will be refused: the table of original destinations is full",
        "accepted" => "the proxy got the original destination of a connection",
        "listener-not-kept" => "the proxy has more listeners than fit into the table: some of them get no connections",
        "listener-of-others" => {
            "a program that is not the proxy listens at the proxy's port: it gets no captured connections"
        }
        "refused-inside" => "a connection to the proxy's port was refused: its original destination is not known",
        "without-proxy" => {
            "no program listens at the proxy's port: an inbound connection was refused, or passed if so configured"
        }
        "policy-denied-out" => "a pod's outbound call was denied: its policies deny the destination",
        "policy-denied-in" => "a packet to a pod was denied: its policies deny the sender",
        "policy-would-deny-out" => "a pod's outbound call was allowed, which a policy in dry run would deny",
        "policy-would-deny-in" => "a packet to a pod was allowed, which a policy in dry run would deny",
        "bypassed-outbound" => "a connection bypassed the client's proxy: the Service asks for that",
        "bypassed-inbound" => "a connection bypassed the server's proxy: the Service asks for that",
        "bypass-refused" => {
            "a connection did not bypass a proxy, though the Service asks for that: one of the pods requires its proxy"
        }
        "source-routed" => {
            "a source route was refused: it leads to another address than the one that the rules were evaluated for"
        }
        "source-forged" => "a packet was dropped: its source address is not the sender's, or is the receiver's own",
        "not-admitted-out" => {
            "a call was refused: the node is armed, and the agent has not admitted this network namespace"
        }
        "not-admitted-in" => {
            "a packet to a network namespace was dropped: the node is armed, and the agent has not admitted the namespace"
        }
        "too-many-pending" => {
            "a connection was refused: the pod already has 4096 connections to its proxy that are not accepted yet"
        }
        "conversation-not-kept" => "the answer to a datagram will be denied: the pod has no table of conversations",
        "not-watched" => {
            "a connection was not counted: there are more pairs of workloads and Services than fit into the table"
        }
        "packet-translated" => "a connection from elsewhere to a Service was given a backend",
        "packet-without-endpoint" => "a packet to a Service was dropped: only other nodes have endpoints",
        "packet-refused" => "a packet to a Service was refused: no endpoint serves",
        "packet-not-in-ranges" => "a packet to a Service was dropped: its source is not in loadBalancerSourceRanges",
        "packet-not-tracked" => {
            "a packet to a Service was dropped: conntrack cannot take the connection, or the node has no way to the backend"
        }
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
