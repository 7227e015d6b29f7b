//! Publishes Events (events.k8s.io/v1). Repeated ones become a series, by the client library.

use super::{Notice, Reason, Subject};
use crate::cluster;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use sidestep_error::chain;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// Kubernetes' limit for a note is 1 KiB.
const LONGEST_NOTE: usize = 1000;
/// An API server that does not answer in this time gets no Event.
const PATIENCE: Duration = Duration::from_secs(10);
const CONTROLLER: &str = "sidestep.dev/agent";

/// Until the sender has gone, or the server refuses Events.
pub fn run(kubeconfig: Option<&Path>, node: &str, notices: Receiver<Notice>) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(publish_all(kubeconfig, node, notices)),
        Err(error) => tracing::warn!("there will be no Kubernetes Events: {}", chain(&error)),
    }
}

async fn publish_all(kubeconfig: Option<&Path>, node: &str, mut notices: Receiver<Notice>) {
    let mut recorder = None;
    while let Some(notice) = notices.recv().await {
        if recorder.is_none() {
            recorder = connect(kubeconfig, node).await;
        }
        let Some(found) = &recorder else { continue };
        let (event, about) = (event(&notice), reference(&notice.subject, node));
        let published = found.publish(&event, &about);
        match tokio::time::timeout(PATIENCE, published).await {
            Ok(Ok(())) => {}
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                tracing::warn!(
                    "there will be no Kubernetes Events: give the agent's ClusterRole the verbs create and patch for \
                     events of the group events.k8s.io, and start it again ({})",
                    one_line(&status.message, LONGEST_NOTE)
                );
                return;
            }
            // The series that the event belonged to may be gone, and the connection's settings may have changed.
            Ok(Err(error)) => {
                tracing::debug!("an Event was not published: {}", chain(&error));
                recorder = None;
            }
            Err(_) => recorder = None,
        }
    }
}

async fn connect(kubeconfig: Option<&Path>, node: &str) -> Option<Recorder> {
    // The source of Services reports why there is no connection.
    let client = Client::try_from(cluster::config(kubeconfig).await.ok()?).ok()?;
    Some(Recorder::new(client, Reporter { controller: CONTROLLER.into(), instance: Some(node.into()) }))
}

fn event(notice: &Notice) -> Event {
    Event {
        type_: EventType::Warning,
        reason: format!("{:?}", notice.reason),
        note: Some(one_line(&notice.note, LONGEST_NOTE)),
        action: action(notice.reason).into(),
        secondary: None,
    }
}

/// What the agent was doing.
fn action(of: Reason) -> &'static str {
    match of {
        Reason::ResourceExhaustion | Reason::AddressConflict => "WritingTables",
        Reason::InvalidObject => "Reading",
        Reason::CaptureTrouble => "Capturing",
        Reason::PolicyTrouble => "EnforcingPolicies",
        Reason::NotAdmitted => "Repairing",
        Reason::RingsLeftOut | Reason::RingsNoEffect | Reason::RingsUnknown => "StartingContainer",
    }
}

fn reference(subject: &Subject, node: &str) -> ObjectReference {
    let text = |text: &str| Some(text.to_string());
    match subject {
        // The kubelet gives the node's name as the UID, too, and kubectl looks for that.
        Subject::Node => ObjectReference {
            api_version: text("v1"),
            kind: text("Node"),
            name: text(node),
            uid: text(node),
            ..ObjectReference::default()
        },
        Subject::Pod { namespace, name, uid, container } => ObjectReference {
            api_version: text("v1"),
            kind: text("Pod"),
            namespace: text(namespace),
            name: text(name),
            uid: uid.as_deref().and_then(text),
            // As the kubelet names it.
            field_path: container.as_ref().map(|name| format!("spec.containers{{{name}}}")),
            ..ObjectReference::default()
        },
    }
}

/// As much of the text as fits, without control characters.
fn one_line(text: &str, longest: usize) -> String {
    let mut line = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if line.len() + c.len_utf8() > longest {
            break;
        }
        line.push(c);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_fits() {
        assert_eq!(one_line("a\nb", 10), "a b");
        let long = one_line(&"ü".repeat(2000), LONGEST_NOTE);
        assert_eq!(long.len(), LONGEST_NOTE);
    }
}
