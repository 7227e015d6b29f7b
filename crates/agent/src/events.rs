//! Rare events of the kernel half, as lines of the log: one a second for each kind, however many there are.

use crate::message::Message;
use sidestep_ebpf::events::{self, Event};
use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::Sender;

/// Tells each event, until nobody listens.
pub fn follow(pins: &Path, inbox: &Sender<Message>) -> Result<(), String> {
    let is_wanted = |event| inbox.send(Message::Event(event)).is_ok();
    events::follow(pins, is_wanted).map_err(|error| error.to_string())
}

/// Events of one kind since the last line.
#[derive(Default)]
pub struct Digest {
    kinds: HashMap<(&'static str, u32), (u64, Option<Event>)>,
}

impl Digest {
    pub fn add(&mut self, event: Event) {
        let (count, last) = self.kinds.entry((event.reason, event.service)).or_default();
        *count += 1;
        *last = Some(event);
    }

    /// Writes the lines; `name` knows whose number a Service's is, `pod` whose namespace is captured.
    pub fn log(&mut self, name: impl Fn(u32) -> Option<String>, pod: impl Fn(u64) -> Option<String>) {
        for ((reason, service), (count, last)) in self.kinds.drain() {
            let Some(event) = last else { continue };
            let whose = name(service).unwrap_or_else(|| "no Service".into());
            let capture = pod(event.netns);
            tracing::info!(
                reason,
                count,
                service = %whose,
                capture,
                to = %event.frontend,
                pid = event.pid,
                netns = event.netns,
                "{}",
                events::meaning(reason)
            );
        }
    }
}
