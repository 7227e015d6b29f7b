//! The controller, which visits namespaces and writes the tables of captured pods.
//!
//! Documents of kind Capture name namespaces, which come, go and change on their own. Each such event only makes a visit due.
//! The visit compares what it finds with the last visit, and writes the differences.

use super::enforcer::PolicyEnforcer;
use super::identity::{self, Identity};
use super::lifecycle::{Stage, Step};
use super::namespaces::{Namespaces, Orphaned};
use super::reporter::Reporter;
use super::schedule::Schedule;
use super::{Blind, CaptureStatus, Order, changes};
use crate::message::{Message, refused};
use crate::settings::Settings;
use notify::RecommendedWatcher;
use sidestep_agent_api::Answer;
use sidestep_ebpf::capture::Captures;
use sidestep_ebpf::error::Error;
use sidestep_ebpf::packets;
use sidestep_ebpf::probe::{self, Missing};
use sidestep_error::chain;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Changes come in bursts: a visit waits so long for the burst to end.
const SWARM: Duration = Duration::from_millis(10);
/// Pauses between searches for a missing namespace: the first one, and the longest.
pub const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_secs(4)];
/// Orders that are processed together.
const BATCH: usize = 1024;

pub fn run(settings: &Settings, node: u64, orders: &Receiver<Order>, own: &Sender<Order>, inbox: &Sender<Message>) {
    let to_us = own.clone();
    std::thread::spawn(move || changes::follow(&to_us));
    let mut controller = CaptureController::new(settings, node, own, inbox);
    loop {
        let first = match controller.pause() {
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(pause) => orders.recv_timeout(pause),
        };
        if let Err(RecvTimeoutError::Disconnected) = first {
            return;
        }
        for order in first.into_iter().chain(orders.try_iter().take(BATCH)) {
            if let Order::Stop = order {
                return;
            }
            controller.handle(order);
        }
        controller.work();
    }
}

/// The state of a Capture document.
pub struct Pod {
    pub capture: Arc<Capture>,
    pub path: PathBuf,
    /// The document named another path before; the namespace at that path is no longer its concern.
    pub has_moved: bool,
    /// The namespace that the document names: its file's identity, and its cookie.
    pub seen: Option<(Identity, u64)>,
    /// The namespace exists, but could not be identified.
    pub is_obscure: bool,
    pub pause: Duration,
    /// Problems that the last visit found.
    pub troubles: Vec<String>,
    /// Why the pod's policies are not in force.
    pub unenforced: Option<String>,
    pub told: Option<CaptureStatus>,
}

impl Pod {
    fn new(capture: Arc<Capture>, path: PathBuf) -> Pod {
        let (has_moved, is_obscure, pause) = (false, false, PAUSES[0]);
        Pod {
            capture,
            path,
            has_moved,
            seen: None,
            is_obscure,
            pause,
            troubles: Vec::new(),
            unenforced: None,
            told: None,
        }
    }
}

/// Whether inotify reports names that come and go.
pub enum NameWatch {
    /// No document names a namespace.
    Unneeded,
    /// The directory does not exist yet: the next attempt is due at this time.
    Due(Instant),
    On(#[expect(dead_code, reason = "it ends with this")] RecommendedWatcher),
}

pub struct CaptureController<'a> {
    pub settings: &'a Settings,
    pub node: u64,
    pub own: &'a Sender<Order>,
    pub reporter: Reporter<'a>,
    pub stage: Stage,
    /// Nothing has been done since everything was done.
    pub has_rested: bool,
    pub captures: Option<Captures>,
    pub enforcer: PolicyEnforcer,
    /// Namespaces that are admitted without a document.
    pub exempt: BTreeSet<u64>,
    /// The bypasses must be written again.
    pub bypasses_stale: bool,
    pub pods: HashMap<Name, Pod>,
    by_path: HashMap<PathBuf, BTreeSet<Name>>,
    pub namespaces: Namespaces,
    pub schedule: Schedule,
    pub watch: NameWatch,
    /// When names are next compared with the namespaces that they stood for.
    pub look: Instant,
    /// Namespaces whose proxies may have begun to listen unseen.
    pub renew: HashSet<u64>,
    /// Namespaces that could not be removed from the tables.
    pub doomed: BTreeSet<u64>,
    /// Why changes of namespaces are not followed.
    pub blind: Option<Blind>,
    /// Captured namespaces that have ended.
    pub ended: u64,
}

/// Why no pod can be captured here.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error(transparent)]
    Tables(#[from] Error),
}

impl CaptureController<'_> {
    fn new<'a>(
        settings: &'a Settings,
        node: u64,
        own: &'a Sender<Order>,
        inbox: &'a Sender<Message>,
    ) -> CaptureController<'a> {
        CaptureController {
            settings,
            node,
            own,
            reporter: Reporter::new(inbox),
            stage: Stage::Waiting,
            has_rested: false,
            captures: None,
            enforcer: PolicyEnforcer::new(settings, node),
            exempt: BTreeSet::new(),
            bypasses_stale: false,
            pods: HashMap::new(),
            by_path: HashMap::new(),
            namespaces: Namespaces::default(),
            schedule: Schedule::default(),
            watch: NameWatch::Unneeded,
            look: Instant::now(),
            renew: HashSet::new(),
            doomed: BTreeSet::new(),
            blind: None,
            ended: 0,
        }
    }

    fn handle(&mut self, order: Order) {
        self.has_rested = false;
        match order {
            Order::Want(name, Some(capture)) => self.want(name, capture),
            Order::Want(name, None) => self.clear(&name),
            Order::Enforce(plan) => self.enforce_plan(plan),
            Order::Begin => self.stage = self.stage.after(Step::Begin),
            Order::Complete => self.stage = self.stage.after(Step::NothingHidden),
            Order::Attached => {
                self.renew.extend(self.namespaces.cookies());
                self.visit_all();
            }
            Order::Named(path) => self.named(&path),
            Order::Renamed => {
                self.admit_exempt();
                self.visit_all();
            }
            Order::Changed(number) => {
                let owner =
                    self.namespaces.by_number(number).and_then(|cookie| self.namespaces.get(cookie)?.owner().cloned());
                owner.into_iter().for_each(|name| self.visit_soon(&name, SWARM));
            }
            Order::Ended(number) => self.end_of(number),
            Order::Lost => self.look_at_all(),
            Order::Blinded(why) => {
                tracing::error!("{}", chain(&why));
                self.blind = Some(why);
                self.look_at_all();
            }
            Order::Pulse(pulse) => pulse.beat(),
            Order::Check(check, reply) => {
                // The client may have gone.
                let _ = reply.send(self.check(check).map(Answer::Check).map_err(|error| refused(&error)));
            }
            Order::Stop => {}
        }
    }

    fn want(&mut self, name: Name, capture: Arc<Capture>) {
        let path = capture.netns.path();
        match self.pods.get_mut(&name) {
            Some(pod) => {
                pod.has_moved |= pod.path != path;
                pod.capture = capture;
                let old = std::mem::replace(&mut pod.path, path.clone());
                self.unname(&name, &old);
            }
            None => {
                self.pods.insert(name.clone(), Pod::new(capture, path.clone()));
            }
        }
        self.by_path.entry(path).or_default().insert(name.clone());
        self.schedule.enqueue(name);
        if let NameWatch::Unneeded = self.watch {
            self.watch = NameWatch::Due(Instant::now());
        }
    }

    fn unname(&mut self, name: &Name, path: &Path) {
        if let Some(names) = self.by_path.get_mut(path) {
            names.remove(name);
            if names.is_empty() {
                self.by_path.remove(path);
            }
        }
    }

    /// A file with this path was created or removed.
    fn named(&mut self, path: &Path) {
        if self.settings.exempt.iter().any(|netns| netns.path() == path) {
            self.admit_exempt();
        }
        for name in self.by_path.get(path).cloned().unwrap_or_default() {
            self.visit_soon(&name, Duration::ZERO);
        }
    }

    fn clear(&mut self, name: &Name) {
        let Some(pod) = self.pods.remove(name) else { return };
        self.unname(name, &pod.path);
        self.schedule.unschedule(name);
        self.release(name);
        self.reporter.note(name, None);
    }

    /// The namespaces that the document has named are no longer its concern.
    pub fn release(&mut self, name: &Name) {
        for orphaned in self.namespaces.release(name) {
            self.orphaned(orphaned);
        }
    }

    pub fn orphaned(&mut self, orphaned: Orphaned) {
        match orphaned {
            Orphaned::Nobody(cookie) => self.remove(cookie),
            Orphaned::Others(_, names) => names.iter().for_each(|other| self.visit_soon(other, Duration::ZERO)),
        }
    }

    pub fn remove(&mut self, cookie: u64) {
        let removed = self.captures.as_mut().map_or(Ok(()), |captures| captures.remove_deferred(cookie));
        if let Err(error) = removed.and(self.enforcer.remove(cookie)) {
            let error = chain(&error);
            tracing::error!("a pod is still captured or enforced, and will be removed in a moment: {error}");
            self.doomed.insert(cookie);
        }
        self.bypasses_stale = true;
    }

    /// The namespace that had this number has ended. It need not be the one that has the number now: numbers are given out again
    /// before the end of the first one is heard here.
    fn end_of(&mut self, number: i32) {
        let holder = self.namespaces.by_number(number);
        holder.filter(|cookie| !self.is_alive(*cookie)).into_iter().for_each(|cookie| self.end(cookie));
    }

    /// Whether the namespace certainly lives. Its program says so, if it has one; else a document that still names it.
    fn is_alive(&self, cookie: u64) -> bool {
        let has_program = self.captures.as_ref().is_some_and(|captures| captures.is_alive(cookie));
        let claims = self.namespaces.get(cookie).into_iter().flat_map(|namespace| namespace.claims());
        let mut pods = claims.filter_map(|name| self.pods.get(name));
        has_program || pods.any(|pod| identity::cookie_at(&pod.path) == Some(cookie))
    }

    pub fn end(&mut self, cookie: u64) {
        let was_captured = self.namespaces.get(cookie).is_some_and(|namespace| namespace.applied.is_some());
        self.ended += u64::from(was_captured);
        for name in self.namespaces.remove(cookie) {
            if let Some(pod) = self.pods.get_mut(&name) {
                pod.seen = None;
            }
            self.visit_soon(&name, Duration::ZERO);
        }
        self.remove(cookie);
    }

    /// Anything may have changed.
    fn look_at_all(&mut self) {
        let dead = |cookie: &u64| {
            let is_captured = self.namespaces.get(*cookie).is_some_and(|namespace| namespace.applied.is_some());
            is_captured && self.captures.as_ref().is_some_and(|captures| !captures.is_alive(*cookie))
                || self.enforcer.has_ended(*cookie)
        };
        let dead: Vec<u64> = self.namespaces.cookies().into_iter().filter(dead).collect();
        dead.into_iter().for_each(|cookie| self.end(cookie));
        self.visit_all();
    }

    pub fn visit_all(&mut self) {
        self.pods.keys().for_each(|name| self.schedule.enqueue(name.clone()));
    }

    /// Makes a visit due at that time, unless one is due earlier.
    pub fn visit_soon(&mut self, name: &Name, after: Duration) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        pod.pause = PAUSES[0];
        self.schedule.visit_by(name, Instant::now() + after);
    }

    /// Begins to watch names, or plans the next attempt if the directory does not exist yet.
    pub fn begin_watch(&mut self, again: Duration) {
        match identity::watch(self.own) {
            Some(watcher) => {
                self.watch = NameWatch::On(watcher);
                self.visit_all(); // for names that were created before
            }
            None => self.watch = NameWatch::Due(Instant::now() + again),
        }
    }

    /// The tables, which the first caller opens.
    pub fn captures(&mut self) -> Result<&mut Captures, OpenError> {
        if self.captures.is_none() {
            Missing::check(probe::missing_for_capture())?;
            let captures = Captures::open(&self.settings.pins)?;
            packets::install(&self.settings.options(self.node))?;
            self.captures = Some(captures);
        }
        Ok(self.captures.as_mut().expect("it was just opened"))
    }
}

#[cfg(test)]
mod tests;
