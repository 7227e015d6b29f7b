//! One line of the plugin: what became of a container.

use crate::announce::{Reason, Subject};
use crate::object_name::is_object_name;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use sidestep_agent_api::ContainerEvent;
use std::sync::Arc;

/// Older ones were told by the agent before this one, or are not worth it any more.
const RECENT: SignedDuration = SignedDuration::from_mins(5);
/// Bytes of a UID; Kubernetes' have 36.
const LONGEST_UID: usize = 64;
/// Characters of the reason's sentence.
const LONGEST_MESSAGE: usize = 400;
/// Characters of the reason's name.
const LONGEST_REASON: usize = 40;
/// The pod has asked for it.
const OPTED_OUT: &str = "opted-out";

#[derive(Debug)]
pub struct Told {
    /// UID.
    pub pod: Arc<str>,
    pub subject: Subject,
    pub reason: Reason,
    pub note: String,
}

impl Told {
    /// None: it is nothing that an Event should say, or not from the plugin.
    pub fn read(line: &str) -> Option<Told> {
        Told::read_at(line, Timestamp::now())
    }

    fn read_at(line: &str, now: Timestamp) -> Option<Told> {
        let event: ContainerEvent = serde_json::from_str(line).ok()?;
        let age = now.duration_since(event.time.parse().ok()?);
        if age.abs() > RECENT || event.reason == OPTED_OUT {
            return None;
        }
        let reason = reason(&event.event)?;
        let names = [&event.namespace, &event.pod, &event.container];
        let are_names = names.into_iter().all(|name| is_object_name(name));
        if !are_names || !is_uid(&event.pod_uid) || !is_reason(&event.reason) {
            return None;
        }
        let sentence: String = event.message.chars().take(LONGEST_MESSAGE).collect();
        let note = format!("Container {}: {sentence} ({})", event.container, event.reason);
        let uid: Arc<str> = event.pod_uid.into();
        let (namespace, name, container) = (event.namespace.into(), event.pod.into(), Some(event.container.into()));
        let subject = Subject::Pod { namespace, name, uid: Some(Arc::clone(&uid)), container };
        Some(Told { pod: uid, subject, reason, note })
    }
}

fn reason(outcome: &str) -> Option<Reason> {
    match outcome {
        "left-out" => Some(Reason::RingsLeftOut),
        "no-effect" => Some(Reason::RingsNoEffect),
        "unknown" => Some(Reason::RingsUnknown),
        _ => None,
    }
}

fn is_uid(text: &str) -> bool {
    (1..=LONGEST_UID).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn is_reason(text: &str) -> bool {
    (1..=LONGEST_REASON).contains(&text.len()) && text.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn read(changes: &Value) -> Option<Told> {
        let mut line = json!({"time": "2026-01-02T03:04:04.5Z", "level": "info", "event": "no-effect", "namespace": "shop",
                              "pod": "web-0", "pod_uid": "1f0b-8a52", "container": "app", "reason": "static",
                              "message": "The entrypoint is static"});
        line.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        Told::read_at(&line.to_string(), NOW.parse().unwrap())
    }

    #[test]
    fn a_line_is_an_event_of_its_container() {
        let told = read(&json!({})).unwrap();
        let expected = Subject::Pod {
            namespace: "shop".into(),
            name: "web-0".into(),
            uid: Some("1f0b-8a52".into()),
            container: Some("app".into()),
        };
        assert_eq!((told.subject, told.reason), (expected, Reason::RingsNoEffect));
        assert_eq!(told.note, "Container app: The entrypoint is static (static)");
        let long = read(&json!({"message": "x".repeat(100_000)})).unwrap();
        assert!(long.note.len() < 500);
    }

    #[test]
    fn what_the_plugin_does_not_write_is_no_event() {
        let strange = [
            json!({"event": "injected"}),
            json!({"namespace": "../default"}),
            json!({"pod": "a/b"}),
            json!({"pod": ""}),
            json!({"container": "a}b"}),
            json!({"pod_uid": "a b"}),
            json!({"pod_uid": "a".repeat(65)}),
            json!({"reason": "two words"}),
            json!({"reason": 1}),
            json!({"time": "yesterday"}),
        ];
        for changes in strange {
            assert!(read(&changes).is_none(), "{changes}");
        }
        assert!(Told::read("").is_none() && Told::read("{}").is_none() && Told::read("[1").is_none());
    }

    #[test]
    fn what_is_old_or_wanted_is_no_event() {
        assert!(read(&json!({"time": "2026-01-02T02:50:00Z"})).is_none());
        assert!(read(&json!({"reason": "opted-out", "event": "left-out"})).is_none());
    }
}
