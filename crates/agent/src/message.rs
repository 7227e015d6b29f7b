//! What the threads of the agent tell the one that owns the tables.

use crate::captures::report::Report;
use crate::settings::Settings;
use sidestep_agent_api::{Question, Refusal, Reply, Trouble};
use sidestep_ebpf::error::{Error, chain};
use sidestep_ebpf::events::Event;
use sidestep_ebpf::reclaim::Reclaimed;
use sidestep_mesh::address::Address;
use sidestep_mesh::state::Change;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

pub enum Message {
    /// By the source of this number.
    Update(usize, Update),
    /// What became of captured pods.
    Captured(Report),
    /// The addresses of this node, all of them.
    NodeAddresses(BTreeSet<Address>),
    /// Something rare has happened in the kernel.
    Event(Event),
    /// What became of connected UDP sockets whose backend had gone, or why nothing did.
    Reclaimed(Result<Reclaimed, Error>),
    Asked(Question, SyncSender<Reply>),
    /// As they have been read again.
    Settings(Box<Settings>),
    Stop,
}

/// What a source tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// What happened together, such as an object that moved from one file to another: nobody sees a part of it.
    Changes(Vec<Change>),
    /// Something cannot be read. What it held before stands.
    Trouble(Trouble),
    /// The trouble with this place is over.
    Well(String),
    /// Everything that can be read at present has been told.
    Listed,
    /// The zone of this node.
    Zone(Option<Arc<str>>),
}

/// The agent has ended: there is nobody to tell.
#[derive(Debug)]
pub struct Gone;

/// A source's way to the agent.
#[derive(Clone)]
pub struct EventSink {
    inbox: Sender<Message>,
    source: usize,
}

impl EventSink {
    /// Of the source of this number.
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

    /// A trouble with the origin itself, of which everything is known that it has told.
    pub fn outage(&self, place: impl ToString, what: impl ToString) -> Result<(), Gone> {
        let (place, what) = (place.to_string(), what.to_string());
        self.tell(Update::Trouble(Trouble { place, what, hides_objects: false }))
    }

    pub fn well(&self, place: impl ToString) -> Result<(), Gone> {
        self.tell(Update::Well(place.to_string()))
    }
}

pub type Refresher = Box<dyn Fn() + Send>;

/// Where desired state comes from.
pub trait Source: Send {
    /// For people: "directory /etc/sidestep/services".
    fn name(&self) -> String;

    /// Makes it read everything again, from another thread.
    fn refresher(&self) -> Refresher;

    /// Tells everything there is, then [`Update::Listed`], then every change, until nobody listens. A source that loses
    /// its origin says so as a trouble and tries again: what it has told before stands.
    fn run(self: Box<Self>, sink: &EventSink) -> Result<(), Gone>;
}

/// An error in the words that who asked is given.
pub fn refused(error: &(dyn std::error::Error + 'static)) -> Refusal {
    Refusal(chain(error).to_string())
}

#[derive(Debug, thiserror::Error)]
#[error("the agent is about to end")]
struct Ending;

/// Asks the thread that owns the tables.
#[derive(Clone)]
pub struct QueryHandle(Sender<Message>);

impl QueryHandle {
    pub fn new(inbox: Sender<Message>) -> QueryHandle {
        QueryHandle(inbox)
    }

    /// Waits for the answer.
    pub fn ask(&self, question: Question) -> Reply {
        let ending = || refused(&Ending);
        let (reply, answer) = sync_channel(1);
        self.0.send(Message::Asked(question, reply)).map_err(|_| ending())?;
        answer.recv().map_err(|_| ending())?
    }
}
