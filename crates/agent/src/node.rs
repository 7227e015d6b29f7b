//! The agent's main thread: it owns the desired state and the tables.

mod packets;
mod settings;
mod tables;
mod warnings;

use crate::announce::{Announcer, Reason, Subject};
use crate::captures::{CaptureThread, Order, Report, report};
use crate::complaints::Complaints;
use crate::events::Counted;
use crate::flows::{Flows, Names};
use crate::health::{Health, Pulse};
use crate::health_checks::HealthChecks;
use crate::lock;
use crate::message::{Message, Update, refused};
use crate::policing::{Changed, Policing};
use crate::questions;
use crate::reclaimer::Reclaimer;
use crate::settings::Settings;
use crate::view::{Pods, View};
use crate::waiting::{self, Waiting};
use sidestep_agent_api::{Admission, Answer, Question, Reconcile, Source};
use sidestep_ebpf::capture::Captures;
use sidestep_ebpf::external::{External, Rivals};
use sidestep_ebpf::plane::Maps;
use sidestep_error::chain;
use sidestep_mesh::address::Address;
use sidestep_mesh::choose;
use sidestep_mesh::object::{Key, Name};
use sidestep_mesh::reconcile::Reconciler;
use sidestep_mesh::state::{Concerned, State};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How the agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What is programmed stays.
    Leave,
    /// Everything goes.
    Detach,
}

pub struct Node {
    view: View,
    /// Services that have changed since the tables were written.
    changed: BTreeSet<Name>,
    /// Of the node itself, all of them.
    addresses: BTreeSet<Address>,
    /// What an earlier agent left and nobody wants any more has been taken away.
    is_complete: bool,
    /// After a failed write: when it is tried again.
    again: Option<Instant>,
    complaints: Complaints,
    events: Counted,
    log_due: Option<Instant>,
    reclaimer: Reclaimer,
    /// Some sockets whose backend has gone wait for another one.
    udp_sockets_wait: bool,
    controller: CaptureThread,
    /// None: connections are not counted.
    flows: Option<Flows>,
    /// Captured pods that have changed since the controller was told.
    recaptured: BTreeSet<Name>,
    /// How far the start of captures has come.
    captures: Stage,
    /// Clients that wait until a pod is captured.
    waiting: Waiting,
    /// This process's programs are attached.
    is_attached: bool,
    since: Instant,
    /// Of the controller's thread.
    pulse: Pulse,
    announcer: Announcer,
    /// None: packets are kube-proxy's.
    external: Option<External>,
    /// When the translation of packets is looked after again.
    external_due: Option<Instant>,
    /// When kube-proxy's rules are looked for again.
    rivals_due: Instant,
    /// Those that the log tells of already.
    rivals: Option<Rivals>,
    /// None: healthCheckNodePorts are kube-proxy's.
    health_checks: Option<HealthChecks>,
    /// Problems of Services that Events were about.
    announced: BTreeSet<(Name, Reason)>,
}

/// Stages of the start of captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Waiting,
    /// The controller has been told what is wanted.
    Begun,
    /// It has done that.
    Settled,
    /// What an earlier agent left and nobody wants any more may go.
    Complete,
}

#[derive(Debug, thiserror::Error)]
#[error("it has other pins, {}", .0.display())]
struct OtherPins(PathBuf);

/// Events are put together for so long.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// Messages that are taken together before the tables are written: many small changes are one write.
const BATCH: usize = 4096;

impl Node {
    pub fn new(
        settings: Settings,
        source_names: Vec<String>,
        netns: u64,
        mut maps: Maps,
        inbox: Sender<Message>,
    ) -> io::Result<Node> {
        let zone = settings.zone.as_deref().map(Into::into);
        let node =
            choose::Node { name: settings.node_name.as_str().into(), zone, external: settings.replace_kube_proxy };
        let reconciler = Reconciler::new(node, &mut maps)?;
        let sources = source_names.into_iter().map(|name| Source { name, ..Source::default() }).collect();
        let pods = Pods::new(Captures::open_read_only(&settings.pins).map_err(io::Error::other)?);
        let policing = Policing::new(&settings.pins).map_err(io::Error::other)?;
        let controller = CaptureThread::start(&settings, netns, inbox.clone());
        let flows = settings.watch.then(|| Flows::start(settings.pins.clone()));
        let announcer = Announcer::start(&settings);
        let networks = settings.node_port_addresses.clone();
        let health_checks = settings.health_check_node_ports.then(|| HealthChecks::start(networks));
        let reclaimer = Reclaimer::start(settings.pins.clone(), inbox);
        let view = View {
            settings,
            netns,
            state: State::default(),
            reconciler,
            maps,
            sources,
            reconcile: Reconcile::default(),
            pods,
            policing,
        };
        Ok(Node {
            view,
            changed: BTreeSet::new(),
            addresses: BTreeSet::new(),
            is_complete: false,
            again: None,
            complaints: Complaints::default(),
            events: Counted::default(),
            log_due: None,
            reclaimer,
            udp_sockets_wait: false,
            controller,
            flows,
            recaptured: BTreeSet::new(),
            captures: Stage::Waiting,
            waiting: Waiting::default(),
            is_attached: false,
            since: Instant::now(),
            pulse: Pulse::default(),
            announcer,
            external: None,
            external_due: None,
            rivals_due: Instant::now(),
            rivals: None,
            health_checks,
            announced: BTreeSet::new(),
        })
    }

    /// Where events are to be counted.
    pub fn events(&self) -> Counted {
        self.events.clone()
    }

    /// Until everything that can be read has been read, and programmed. Until then nothing of an earlier agent's work
    /// is touched: a Service whose endpoints are still to come would be one without.
    pub fn fill(&mut self, messages: &Receiver<Message>) -> Option<End> {
        while !self.view.is_listed() || self.again.is_some() || self.captures < Stage::Settled {
            if let Some(end) = self.step(messages) {
                return Some(end);
            }
        }
        None
    }

    /// Programs are attached. Keeps the tables as they should be, until the end.
    pub fn keep(&mut self, messages: &Receiver<Message>) -> End {
        self.is_attached = true;
        self.waiting.settle(&self.view.pods, true);
        self.reclaimer.ask(); // for backends that went while no agent ran
        self.controller.tell(Order::Attached);
        let (services, captures) = (self.view.state.services().count(), self.view.state.captures().count());
        tracing::info!(services, captures, "balancing");
        loop {
            if let Some(end) = self.step(messages) {
                return end;
            }
        }
    }

    fn step(&mut self, messages: &Receiver<Message>) -> Option<End> {
        let first = match self.due() {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => messages.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        let first = match first {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Some(End::Leave),
        };
        for message in first.into_iter().chain(messages.try_iter().take(BATCH)) {
            if let Some(end) = self.handle(message) {
                return Some(end);
            }
        }
        if self.external_due.is_some_and(|due| due <= Instant::now()) {
            self.look_after_packets();
        }
        self.settle();
        self.waiting.settle(&self.view.pods, self.is_attached);
        self.log_events();
        None
    }

    /// When there is something to do though nobody says anything.
    fn due(&self) -> Option<Instant> {
        let garbage = self.view.reconciler.due_ns().map(|ns| self.since + Duration::from_nanos(ns));
        [self.again, garbage, self.log_due, self.waiting.due(), self.external_due].into_iter().flatten().min()
    }

    fn handle(&mut self, message: Message) -> Option<End> {
        match message {
            Message::Update(source, told) => self.told(source, told),
            Message::Captured(Report::Settled) => self.captures = self.captures.max(Stage::Settled),
            Message::Captured(Report::News(news, figures)) => {
                self.announce_captures(&news, figures.trouble.as_deref());
                self.view.pods.figures = figures;
                report::log(&news);
                news.into_iter().for_each(|(name, status)| self.view.pods.update(name, status));
            }
            Message::NodeAddresses { own, dns_cache } => {
                self.view.policing.set_node(own.union(&dns_cache).map(|one| one.ip()).collect());
                self.addresses = own;
                self.write_addresses();
                self.follow_devices();
            }
            Message::Settings(settings) => self.apply_settings(*settings),
            Message::Events => self.log_due = self.log_due.or(Some(Instant::now() + LOG_EVERY)),
            Message::Reclaimed(Ok(done)) => {
                self.view.reconcile.moved_sockets += done.moved;
                self.view.reconcile.reclaimed_sockets += done.ended;
                self.udp_sockets_wait = done.waiting > 0;
            }
            Message::Reclaimed(Err(error)) => {
                let error = chain(&error);
                tracing::warn!("UDP sockets whose backends have gone are not all led to others, or ended: {error}");
            }
            Message::Wait(wait) => self.waiting.push(wait),
            Message::Asked(Question::Admission(Admission::Ready), reply) if self.view.settings.admissions.is_some() => {
                let _ = reply.send(waiting::ready(self.is_attached));
            }
            Message::Asked(Question::Stop { pins: Some(other), .. }, reply) if !self.has(other) => {
                let _ = reply.send(Err(refused(&OtherPins(self.view.settings.pins.clone()))));
            }
            Message::Asked(Question::Stop { detach, .. }, reply) => {
                // Whoever asked may have gone.
                let _ = reply.send(Ok(Answer::Stopping));
                return Some(if detach { End::Detach } else { End::Leave });
            }
            Message::Asked(Question::Captures { pins: Some(other) }, reply) if !self.has(other) => {
                let _ = reply.send(Err(refused(&OtherPins(self.view.settings.pins.clone()))));
            }
            Message::Asked(Question::Check, reply) => {
                self.settle();
                match questions::check(&self.view) {
                    Ok(check) => self.controller.tell(Order::Check(check, reply)), // who has some to add, and answers
                    Err(error) => drop(reply.send(Err(refused(&error)))),
                }
            }
            Message::Asked(Question::Metrics, reply) if self.flows.is_some() => {
                self.settle();
                match (questions::answer(&self.view, Question::Metrics), &self.flows) {
                    (Ok(Answer::Metrics(metrics)), Some(flows)) => flows.ask(metrics, Names::new(&self.view), reply),
                    (other, _) => drop(reply.send(other)),
                }
            }
            Message::Asked(question, reply) => {
                self.settle(); // so that what was told before the question is in the answer
                let _ = reply.send(questions::answer(&self.view, question));
            }
            // Whoever asked may have gone.
            Message::Probed(reply) => drop(reply.send(self.health())),
            Message::Stop => return Some(End::Leave),
        }
        None
    }

    fn health(&self) -> Health {
        if self.pulse.begin() {
            self.controller.tell(Order::Pulse(self.pulse.clone()));
        }
        let readiness = [
            ("everything that can be read has been read", self.view.is_listed()),
            ("the tables are as they should be", self.again.is_none()),
            ("captured pods have been visited", self.captures >= Stage::Settled),
            ("programs are attached", self.view.is_attached()),
        ];
        Health { captures_silent: self.pulse.silence(), readiness }
    }

    fn has(&self, pins: (u64, u64)) -> bool {
        lock::identity(&self.view.settings.pins) == Some(pins)
    }

    fn told(&mut self, source: usize, told: Update) {
        let its = &mut self.view.sources[source];
        match told {
            Update::Changes(changes) => {
                let (first, other) = (source == 0, source > 0 || self.view.sources.len() == 1);
                let is_its = |key: &Key| if matches!(key, Key::Capture(_) | Key::Policy(_)) { other } else { first };
                let state = &mut self.view.state;
                let concerned: Concerned = changes.into_iter().map(|change| state.apply_of(change, is_its)).collect();
                self.changed.extend(concerned.services);
                if concerned.policy {
                    self.view.policing.note(Changed::Policies);
                }
                self.recaptured.extend(concerned.captures);
            }
            Update::UnreadPolicies(namespaces) => self.view.policing.set_unread(namespaces),
            Update::Listed => its.listed = true,
            Update::Trouble(trouble) => {
                if self.complaints.tell(&trouble) && trouble.hides_objects {
                    let what = format!("{}: {}", trouble.place, trouble.what);
                    self.announcer.warn(Subject::Node, Reason::InvalidObject, what);
                }
                its.troubles.retain(|known| known.place != trouble.place);
                its.troubles.push(trouble);
            }
            Update::Well(place) => {
                self.complaints.end(&place);
                its.troubles.retain(|known| known.place != place);
            }
            Update::Zone(zone) => self.set_zone(zone),
        }
    }

    /// Tells the controller of captured pods what has changed. Where nothing is attached yet nothing is captured before all
    /// is known: a proxy that begins to listen meanwhile would not be found.
    fn recapture(&mut self) {
        let has_captures = self.view.sources_of_captures().iter().all(|source| source.listed);
        let may_begin = has_captures && (self.view.is_listed() || self.view.is_attached());
        if self.captures == Stage::Waiting && !may_begin {
            return;
        }
        let recaptured = std::mem::take(&mut self.recaptured).into_iter();
        let recaptured = recaptured.map(|name| (self.view.state.capture(&name).cloned().map(Arc::new), name));
        let (wanted, gone): (Vec<_>, Vec<_>) = recaptured.partition(|(capture, _)| capture.is_some());
        // A pod that has gone keeps its policies to its end, and a new one has them when it is first visited.
        gone.into_iter().for_each(|(_, name)| self.controller.tell(Order::Want(name, None)));
        let is_whole = self.view.is_listed() && self.view.has_all_captures();
        let View { policing, state, reconciler, .. } = &mut self.view;
        if let Some(plan) = policing.news(state, reconciler, is_whole) {
            self.controller.tell(Order::Enforce(plan));
        }
        wanted.into_iter().for_each(|(capture, name)| self.controller.tell(Order::Want(name, capture)));
        if self.captures == Stage::Waiting {
            self.captures = Stage::Begun;
            self.controller.tell(Order::Begin);
        }
        // Policies of an earlier agent go, too: before every source has been read, it is not known which are wanted.
        if self.captures == Stage::Settled && is_whole {
            self.captures = Stage::Complete;
            self.controller.tell(Order::Complete);
        }
    }

    /// The reconciler's clock.
    fn now_ns(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    fn log_events(&mut self) {
        if self.log_due.is_some_and(|due| due <= Instant::now()) {
            self.log_due = None;
            self.events.take().log(&self.view);
        }
    }
}
