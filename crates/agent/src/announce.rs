//! Kubernetes Events of what goes wrong on this node, on its Node or on a pod: for those who look there, and not into logs.

mod pace;
mod publish;

use crate::settings::{Settings, SourceSettings};
use pace::Pace;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{Sender, channel};

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// This node.
    Node,
    Pod {
        namespace: Arc<str>,
        name: Arc<str>,
        uid: Option<Arc<str>>,
        /// None: the pod as a whole.
        container: Option<Arc<str>>,
    },
}

/// The kind of an Event, which is its `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// A table is full: something is not in force.
    ResourceExhaustion,
    /// Two Services claim one address and port.
    AddressConflict,
    /// A file or object is invalid, or cannot be read; its last valid content stays in force.
    InvalidObject,
    /// A pod is not captured, or not under policy, as it should be.
    CaptureTrouble,
    /// Policies of the whole node are not in force as they should be.
    PolicyTrouble,
    /// A pod runs without having been admitted.
    NotAdmitted,
    /// A container of a pod that is enrolled for rings was created without the library.
    RingsLeftOut,
    /// The library has no effect in such a container.
    RingsNoEffect,
    /// Nobody knows whether it has one.
    RingsUnknown,
}

/// What is to be published.
struct Notice {
    subject: Subject,
    reason: Reason,
    note: String,
}

/// Events that wait to be published; further ones are dropped.
const WAITING: usize = 64;

/// Passes Events on to a thread that publishes them. Events that repeat are published at growing intervals.
pub struct Announcer {
    /// None: there is no API server.
    notices: Option<Sender<Notice>>,
    pace: Pace,
}

impl Announcer {
    pub fn start(settings: &Settings) -> Announcer {
        let kubeconfig = match &settings.source {
            SourceSettings::Kubeconfig(path) => Some(path.clone()),
            SourceSettings::InCluster => None,
            SourceSettings::Directory(_) => return Announcer { notices: None, pace: Pace::default() },
        };
        let (notices, received) = channel(WAITING);
        let node = settings.node_name.clone();
        let work = move || publish::run(kubeconfig.as_deref(), &node, received);
        std::thread::Builder::new().name("announce".into()).spawn(work).expect("cannot start a thread");
        Announcer { notices: Some(notices), pace: Pace::default() }
    }

    /// An Event is worth a line of the log at most: nobody waits for it, and it may be lost.
    pub fn warn(&mut self, subject: Subject, reason: Reason, note: impl ToString) {
        let Some(notices) = &self.notices else { return };
        if self.pace.permits(&subject, reason, Instant::now()) {
            let _ = notices.try_send(Notice { subject, reason, note: note.to_string() });
        }
    }
}
