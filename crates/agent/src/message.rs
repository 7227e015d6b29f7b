//! Messages to the thread that owns the tables.

use crate::captures::report::Report;
use crate::health::Health;
use crate::settings::Settings;
use sidestep_agent_api::{Question, Refusal, Reply, Trouble};
use sidestep_ebpf::error::Error;
use sidestep_ebpf::reclaim::Reclaimed;
use sidestep_error::chain;
use sidestep_mesh::address::Address;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::state::Change;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

pub enum Message {
    /// From the source with this number.
    Update(usize, Update),
    /// The status of captured pods.
    Captured(Report),
    /// All addresses of this node, and those by which pods reach its DNS cache.
    NodeAddresses {
        own: BTreeSet<Address>,
        dns_cache: BTreeSet<Address>,
    },
    /// Rare events in the kernel have been counted, the first since they were last taken.
    Events,
    /// What happened to connected UDP sockets whose backend had gone, or why nothing did.
    Reclaimed(Result<Reclaimed, Error>),
    Asked(Question, SyncSender<Reply>),
    /// A client waits until a pod is captured.
    Wait(Wait),
    /// Is answered at once, unlike a question.
    Probed(oneshot::Sender<Health>),
    /// New settings.
    Settings(Box<Settings>),
    Stop,
}

/// A client that waits until a document of kind Capture, and the policies of its pod, are in force.
pub struct Wait {
    pub capture: Box<Capture>,
    /// Then the answer is no.
    pub until: Instant,
    pub reply: SyncSender<Reply>,
}

/// What a source reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// Changes that happened together, such as an object that moved from one file to another: they are applied as one.
    Changes(Vec<Change>),
    /// Something cannot be read. Its previous content stays in force.
    Trouble(Trouble),
    /// The problem with this place is over.
    Well(String),
    /// Namespaces with a NetworkPolicy that cannot be read, and has no earlier content that stays in force instead.
    UnreadPolicies(BTreeSet<Arc<str>>),
    /// Everything that can be read at present has been reported.
    Listed,
    /// The zone of this node.
    Zone(Option<Arc<str>>),
}

/// The receiving thread has ended.
#[derive(Debug)]
pub struct Gone;

/// A source's channel to the agent.
#[derive(Clone)]
pub struct EventSink {
    inbox: Sender<Message>,
    source: usize,
}

impl EventSink {
    /// For the source with this number.
    pub fn new(inbox: Sender<Message>, source: usize) -> EventSink {
        EventSink { inbox, source }
    }

    pub fn tell(&self, told: Update) -> Result<(), Gone> {
        self.inbox.send(Message::Update(self.source, told)).map_err(|_| Gone)
    }

    pub fn change(&self, change: Change) -> Result<(), Gone> {
        self.tell(Update::Changes(vec![change]))
    }

    pub fn trouble(&self, place: impl ToString, what: impl ToString) -> Result<(), Gone> {
        let (place, what) = (place.to_string(), what.to_string());
        self.tell(Update::Trouble(Trouble { place, what, hides_objects: true }))
    }

    /// Reports a problem of the origin itself. It hides no objects: all that the origin has reported is known.
    pub fn outage(&self, place: impl ToString, what: impl ToString) -> Result<(), Gone> {
        let (place, what) = (place.to_string(), what.to_string());
        self.tell(Update::Trouble(Trouble { place, what, hides_objects: false }))
    }

    pub fn well(&self, place: impl ToString) -> Result<(), Gone> {
        self.tell(Update::Well(place.to_string()))
    }
}

pub type Refresher = Box<dyn Fn() + Send>;

/// A source of desired state.
pub trait Source: Send {
    /// A name for output: "directory /etc/sidestep/services".
    fn name(&self) -> String;

    /// A function that makes the source read everything again, callable from another thread.
    fn refresher(&self) -> Refresher;

    /// Reports everything, then [`Update::Listed`], then every change, until the receiver has gone. A source that loses its origin
    /// reports that as a problem and tries again: what it has reported before stays in force.
    fn run(self: Box<Self>, sink: &EventSink) -> Result<(), Gone>;
}

/// An error in the form in which the client gets it.
pub fn refused(error: &(dyn std::error::Error + 'static)) -> Refusal {
    Refusal(chain(error).to_string())
}

#[derive(Debug, thiserror::Error)]
#[error("the agent is about to end")]
struct Ending;

/// Queries the thread that owns the tables.
#[derive(Clone)]
pub struct QueryHandle(Sender<Message>);

impl QueryHandle {
    pub fn new(inbox: Sender<Message>) -> QueryHandle {
        QueryHandle(inbox)
    }

    /// None: the agent is about to end.
    fn probe(&self) -> Option<oneshot::Receiver<Health>> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Message::Probed(reply)).ok()?;
        Some(answer)
    }

    /// None: the agent is about to end, is loading programs, or does not answer in time.
    pub async fn health(&self, patience: Duration) -> Option<Health> {
        tokio::time::timeout(patience, self.probe()?).await.ok()?.ok()
    }

    /// Waits for the answer.
    pub fn ask(&self, question: Question) -> Reply {
        let ending = || refused(&Ending);
        let (reply, answer) = sync_channel(1);
        self.0.send(Message::Asked(question, reply)).map_err(|_| ending())?;
        answer.recv().map_err(|_| ending())?
    }
}
