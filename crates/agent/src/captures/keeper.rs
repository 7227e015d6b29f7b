//! The one who visits namespaces and writes the tables of captured pods.
//!
//! Files of kind Capture name namespaces, which come, go and change on their own. Each of these only makes a visit due:
//! what a visit finds is compared with what was found before, and written.

use super::identity::{self, Identity};
use super::judging::Judging;
use super::spaces::{Left, Spaces};
use super::{Figures, Order, Report, Standing, places};
use crate::message::Message;
use crate::settings::Settings;
use notify::RecommendedWatcher;
use sidestep_agent_api::{Answer, Check, Fill};
use sidestep_ebpf::capture::Captures;
use sidestep_ebpf::netns::cookie_of;
use sidestep_ebpf::{packets, probe, walk};
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Changes come in swarms.
const SWARM: Duration = Duration::from_millis(10);
/// A namespace that is not there is looked for: at first after this, at last so often.
pub const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_secs(4)];
/// Names are compared so often with the namespaces that they stood for, whatever inotify says.
const LOOK: Duration = Duration::from_secs(5);
/// While inotify tells nothing, since there is nothing to watch yet.
const UNWATCHED: Duration = Duration::from_millis(20);
/// Orders that are taken together, and news that are told together.
const BATCH: usize = 1024;
/// What is to be erased from the tables waits for so much more, or for nothing else to do.
const UNTIDY: usize = 1024;

pub fn keep(settings: &Settings, node: u64, orders: &Receiver<Order>, own: &Sender<Order>, inbox: &Sender<Message>) {
    let to_us = own.clone();
    std::thread::spawn(move || places::follow(&to_us));
    let mut keeper = Keeper::new(settings, node, own, inbox);
    loop {
        let first = match keeper.pause() {
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
            keeper.take(order);
        }
        keeper.work();
    }
}

/// A file of kind Capture.
pub struct Pod {
    pub capture: Arc<Capture>,
    pub path: PathBuf,
    /// It has named another namespace before, which is its business no more.
    pub has_moved: bool,
    /// The namespace that it names, by its file and by its cookie.
    pub seen: Option<(Identity, u64)>,
    /// Why it could not be found out which namespace that is, though there is one.
    pub is_obscure: bool,
    pub is_queued: bool,
    pub due: Option<Instant>,
    pub pause: Duration,
    /// What the last visit has found to be wrong.
    pub troubles: Vec<String>,
    /// Why it is not judged as its policies want it.
    pub unjudged: Option<String>,
    pub told: Option<Standing>,
}

pub struct Keeper<'a> {
    pub settings: &'a Settings,
    pub node: u64,
    own: &'a Sender<Order>,
    inbox: &'a Sender<Message>,
    captures: Option<Captures>,
    pub judging: Judging,
    /// Namespaces that are admitted though no file names them.
    exempt: BTreeSet<u64>,
    /// Where connections are led around proxies is to be written anew.
    pub is_led_astray: bool,
    pub pods: HashMap<Name, Pod>,
    by_path: HashMap<PathBuf, BTreeSet<Name>>,
    pub spaces: Spaces,
    /// Pods to visit when nothing is due.
    queue: VecDeque<Name>,
    due: BTreeSet<(Instant, Name)>,
    look: Instant,
    has_begun: bool,
    /// Nothing was done since everything was done.
    has_rested: bool,
    is_settled: bool,
    may_complete: bool,
    pub is_complete: bool,
    /// Namespaces whose proxies may have begun to listen unseen.
    pub renew: HashSet<u64>,
    /// Namespaces that could not be removed from the tables.
    doomed: BTreeSet<u64>,
    watcher: Option<RecommendedWatcher>,
    /// When to try to watch, if nobody does.
    watch: Option<Instant>,
    /// Why changes of places are not followed.
    pub blind: Option<String>,
    pub news: BTreeMap<Name, Option<Standing>>,
    ended: u64,
    told: Figures,
}

impl Keeper<'_> {
    fn new<'a>(settings: &'a Settings, node: u64, own: &'a Sender<Order>, inbox: &'a Sender<Message>) -> Keeper<'a> {
        Keeper {
            settings,
            node,
            own,
            inbox,
            captures: None,
            judging: Judging::new(settings, node),
            exempt: BTreeSet::new(),
            is_led_astray: false,
            pods: HashMap::new(),
            by_path: HashMap::new(),
            spaces: Spaces::default(),
            queue: VecDeque::new(),
            due: BTreeSet::new(),
            look: Instant::now(),
            has_begun: false,
            has_rested: false,
            is_settled: false,
            may_complete: false,
            is_complete: false,
            renew: HashSet::new(),
            doomed: BTreeSet::new(),
            watcher: None,
            watch: None,
            blind: None,
            news: BTreeMap::new(),
            ended: 0,
            told: Figures::default(),
        }
    }

    // --- what is told -------------------------------------------------------------------------------------------------

    fn take(&mut self, order: Order) {
        self.has_rested = false;
        match order {
            Order::Want(name, Some(capture)) => self.want(name, capture),
            Order::Want(name, None) => self.forget(&name),
            Order::Judge(court) => self.rejudge(court),
            Order::Begin => self.has_begun = true,
            Order::Complete => self.may_complete = true,
            Order::Attached => {
                self.renew.extend(self.spaces.cookies());
                self.visit_all();
            }
            Order::Named(path) => {
                if self.settings.exempt.iter().any(|netns| netns.path() == path) {
                    self.admit_exempt();
                }
                for name in self.by_path.get(&path).cloned().unwrap_or_default() {
                    self.visit_soon(&name, Duration::ZERO);
                }
            }
            Order::Renamed => {
                self.admit_exempt();
                self.visit_all();
            }
            Order::Changed(number) => {
                let owner = self.spaces.by_number(number).and_then(|cookie| self.spaces.get(cookie)?.owner().cloned());
                owner.into_iter().for_each(|name| self.visit_soon(&name, SWARM));
            }
            Order::Ended(number) => self.spaces.by_number(number).into_iter().for_each(|cookie| self.end(cookie)),
            Order::Lost(why) => self.lost(why),
            Order::Check(check, reply) => {
                let _ = reply.send(self.check(check).map(Answer::Check)); // whoever asked may have gone
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
                let pause = PAUSES[0];
                let pod = Pod {
                    capture,
                    path: path.clone(),
                    has_moved: false,
                    seen: None,
                    is_obscure: false,
                    is_queued: false,
                    due: None,
                    pause,
                    troubles: Vec::new(),
                    unjudged: None,
                    told: None,
                };
                self.pods.insert(name.clone(), pod);
            }
        }
        self.by_path.entry(path).or_default().insert(name.clone());
        self.enqueue(name);
        if self.watcher.is_none() && self.watch.is_none() {
            self.watch = Some(Instant::now());
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

    fn forget(&mut self, name: &Name) {
        let Some(pod) = self.pods.remove(name) else { return };
        self.unname(name, &pod.path);
        if let Some(due) = pod.due {
            self.due.remove(&(due, name.clone()));
        }
        self.release(name);
        self.news.insert(name.clone(), None);
    }

    /// What the file has named is its business no more.
    pub fn release(&mut self, name: &Name) {
        for left in self.spaces.release(name) {
            self.left(left);
        }
    }

    pub fn left(&mut self, left: Left) {
        match left {
            Left::Nobody(cookie) => self.remove(cookie),
            Left::Others(_, names) => names.iter().for_each(|other| self.visit_soon(other, Duration::ZERO)),
        }
    }

    fn remove(&mut self, cookie: u64) {
        let removed = self.captures.as_mut().map_or(Ok(()), |captures| captures.remove_untidily(cookie));
        if let Err(error) = removed.and(self.judging.forget(cookie)) {
            tracing::error!("a pod is still captured or judged, and will be removed in a moment: {error}");
            self.doomed.insert(cookie);
        }
        self.is_led_astray = true;
    }

    fn end(&mut self, cookie: u64) {
        let was_captured = self.spaces.get(cookie).is_some_and(|space| space.applied.is_some());
        self.ended += u64::from(was_captured);
        for name in self.spaces.remove(cookie) {
            if let Some(pod) = self.pods.get_mut(&name) {
                pod.seen = None;
            }
            self.visit_soon(&name, Duration::ZERO);
        }
        self.remove(cookie);
    }

    fn lost(&mut self, why: String) {
        if !why.is_empty() {
            tracing::error!("{why}");
            self.blind = Some(why);
        }
        let dead = |cookie: &u64| {
            let is_captured = self.spaces.get(*cookie).is_some_and(|space| space.applied.is_some());
            is_captured && self.captures.as_ref().is_some_and(|captures| !captures.is_alive(*cookie))
        };
        let dead: Vec<u64> = self.spaces.cookies().into_iter().filter(dead).collect();
        dead.into_iter().for_each(|cookie| self.end(cookie));
        self.visit_all();
    }

    fn check(&self, mut check: Check) -> Result<Check, String> {
        let captured = self.captures.as_ref().map(|captures| captures.differences(self.is_complete));
        let differences = captured.unwrap_or(Ok(Vec::new())).map_err(|error| error.to_string())?;
        check.captures = self.captures.as_ref().map_or(0, |captures| captures.namespaces().len());
        let named = |cookie| match self.spaces.get(cookie).and_then(|space| space.applied.as_ref()) {
            Some(capture) => format!("Capture {}", capture.name),
            None if cookie == 0 => "policies".into(),
            None => format!("namespace {cookie}"),
        };
        let judged = self.judging.differences(self.is_complete).map_err(|error| error.to_string())?;
        check.judged = self.judging.count();
        check.problems.extend(self.judging.trouble.clone());
        let differences = differences.into_iter().map(|(cookie, what)| (cookie, what.to_string())).chain(judged);
        check.differences.extend(differences.map(|(cookie, what)| format!("{}: {what}", named(cookie))));
        check.admitted = self.judging.admitted();
        if check.admitted.is_some() {
            check.barred = self.barred();
        }
        Ok(check)
    }

    /// Network namespaces of this node that may talk with nobody, by their files.
    fn barred(&self) -> Vec<String> {
        let is_barred = |path: &PathBuf| {
            cookie_of(path).is_ok_and(|cookie| cookie != self.node && !self.judging.is_admitted(cookie))
        };
        walk::namespaces().into_iter().filter(is_barred).map(|path| path.display().to_string()).collect()
    }

    // --- when to do what ------------------------------------------------------------------------------------------------

    /// How long there is nothing to do, if nobody says anything.
    fn pause(&self) -> Option<Duration> {
        if !self.has_begun {
            return None;
        }
        if !self.queue.is_empty() || !self.has_rested {
            return Some(Duration::ZERO);
        }
        let end = self.captures.as_ref().and_then(Captures::next_end);
        let next =
            self.due.first().map(|(due, _)| *due).into_iter().chain([self.look]).chain(self.watch).chain(end).min();
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    fn enqueue(&mut self, name: Name) {
        if let Some(pod) = self.pods.get_mut(&name).filter(|pod| !pod.is_queued) {
            pod.is_queued = true;
            self.queue.push_back(name);
        }
    }

    fn visit_all(&mut self) {
        let all: Vec<Name> = self.pods.keys().cloned().collect();
        all.into_iter().for_each(|name| self.enqueue(name));
    }

    /// Unless a visit is due earlier anyway.
    pub fn visit_soon(&mut self, name: &Name, after: Duration) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        pod.pause = PAUSES[0];
        let at = Instant::now() + after;
        if pod.due.is_none_or(|due| due > at) {
            self.set_due(name, Some(at));
        }
    }

    pub fn set_due(&mut self, name: &Name, at: Option<Instant>) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        if let Some(before) = std::mem::replace(&mut pod.due, at) {
            self.due.remove(&(before, name.clone()));
        }
        self.due.extend(at.map(|at| (at, name.clone())));
    }

    /// One visit, or what is done when there is none.
    fn work(&mut self) {
        if !self.has_begun {
            return;
        }
        let now = Instant::now();
        if self.look <= now {
            self.look();
            self.look = now + LOOK;
        }
        if self.watch.is_some_and(|watch| watch <= now) {
            self.watch();
        }
        let is_due = self.due.first().is_some_and(|(due, _)| *due <= now);
        let next = if is_due { self.due.pop_first().map(|(_, name)| name) } else { self.queue.pop_front() };
        match next {
            Some(name) => {
                self.has_rested = false;
                self.visit(&name);
            }
            None => self.rest(),
        }
        if self.captures.as_ref().is_some_and(|captures| captures.untidy() > UNTIDY) {
            self.tidy();
        }
        if self.news.len() >= BATCH {
            self.tell();
        }
    }

    /// Everything that is known has been done.
    fn rest(&mut self) {
        self.has_rested = true;
        self.tidy();
        if std::mem::take(&mut self.is_led_astray) {
            self.lead();
        }
        if self.may_complete && !self.is_complete && !self.pods.values().any(|pod| pod.is_obscure) {
            self.complete();
        }
        self.tell();
        if !self.is_settled {
            self.is_settled = true;
            self.admit_exempt();
            self.judging.arm();
            let _ = self.inbox.send(Message::Captured(Report::Settled)); // to an agent that is about to end
            self.prepare();
        }
    }

    /// The first pod is not to wait for what is done once. Where nothing can be captured, its file will say why.
    fn prepare(&mut self) {
        if let Ok(Err(error)) = self.captures().map(Captures::prepare) {
            tracing::warn!("no pod can be captured: {error}");
        }
    }

    fn tell(&mut self) {
        let tables = self.captures.as_ref().map(Captures::fill).unwrap_or_default().into_iter();
        let tables = tables.map(|fill| Fill { table: fill.table.into(), used: fill.used as u32, size: fill.room });
        let figures = Figures {
            tables: tables.chain(self.judging.fill()).collect(),
            ended: self.ended,
            judged: self.judging.count(),
            admitted: self.judging.admitted(),
            trouble: self.judging.trouble.clone(),
        };
        if self.news.is_empty() && self.told == figures {
            return;
        }
        if let Some(trouble) = figures.trouble.as_ref().filter(|trouble| self.told.trouble.as_ref() != Some(trouble)) {
            tracing::error!("{trouble}");
        }
        self.told = figures.clone();
        let news = std::mem::take(&mut self.news).into_iter().collect();
        let _ = self.inbox.send(Message::Captured(Report::News(news, figures)));
    }

    fn tidy(&mut self) {
        if let Some(Err(error)) = self.captures.as_mut().map(Captures::tidy) {
            tracing::warn!("what is not in force any more is not erased yet: {error}");
        }
    }

    fn complete(&mut self) {
        self.is_complete = true;
        let wanted = self.spaces.cookies();
        // Where nothing can be captured nothing is.
        let completed = self.captures().ok().map(|captures| captures.complete_but(&wanted));
        if let Some(Err(error)) = completed {
            tracing::error!("what an earlier agent has captured besides is not removed: {error}");
        }
        if let Err(error) = self.judging.complete(&self.whose(), &self.exempt) {
            tracing::error!("pods that an earlier agent judged besides still are: {error}");
        }
        self.is_led_astray = true;
        self.lead();
    }

    fn watch(&mut self) {
        self.watcher = identity::watch(self.own);
        self.watch = self.watcher.is_none().then(|| Instant::now() + UNWATCHED);
        if self.watcher.is_some() {
            self.visit_all(); // names that came before
        }
    }

    /// Names may stand for other namespaces than before.
    fn admit_exempt(&mut self) {
        if !self.settings.arm {
            return;
        }
        let found = self.settings.exempt.iter().filter_map(|netns| cookie_of(&netns.path()).ok()).collect();
        let before = std::mem::replace(&mut self.exempt, found);
        let gone = before.difference(&self.exempt).filter(|cookie| self.spaces.get(**cookie).is_none());
        gone.for_each(|cookie| drop(self.judging.forget(*cookie)));
        for cookie in &self.exempt {
            if let Err(error) = self.judging.admit(*cookie) {
                tracing::error!("a network namespace that is exempt may not talk: {error}");
            }
        }
    }

    /// What inotify may not have told, and what did not work.
    fn look(&mut self) {
        if self.is_settled {
            self.admit_exempt();
        }
        std::mem::take(&mut self.doomed).into_iter().for_each(|cookie| self.remove(cookie));
        let has_changed = |pod: &Pod| pod.seen.is_some_and(|(seen, _)| identity::named(&pod.path) != Some(seen));
        let is_blind = self.blind.is_some();
        let changed = self.pods.iter().filter(|(_, pod)| is_blind || has_changed(pod)).map(|(name, _)| name.clone());
        changed.collect::<Vec<_>>().into_iter().for_each(|name| self.enqueue(name));
    }

    pub fn captures(&mut self) -> Result<&mut Captures, String> {
        if self.captures.is_none() {
            let missing = probe::missing_for_capture();
            if !missing.is_empty() {
                return Err(missing.join("; "));
            }
            let captures = Captures::open(&self.settings.pins).map_err(|error| error.to_string())?;
            packets::install(&self.settings.options(self.node)).map_err(|error| error.to_string())?;
            self.captures = Some(captures);
        }
        Ok(self.captures.as_mut().expect("it was just opened"))
    }
}
