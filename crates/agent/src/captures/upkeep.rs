//! What the controller does between visits: once everything is done, and at intervals.

use super::Figures;
use super::controller::{CaptureController, NameWatch, Pod};
use super::identity;
use super::lifecycle::{Stage, Step};
use sidestep_agent_api::{Check, Fill};
use sidestep_ebpf::capture::Captures;
use sidestep_ebpf::error::Result;
use sidestep_ebpf::netns::cookie_of;
use sidestep_ebpf::walk;
use sidestep_error::chain;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often names are compared with the namespaces that they stood for, whatever inotify reports.
const LOOK: Duration = Duration::from_secs(5);
/// How often names are compared while inotify has nothing to watch yet.
const UNWATCHED: Duration = Duration::from_millis(20);
/// Replaced entries are erased when there are so many, or when there is nothing else to do.
const MOST_GARBAGE: usize = 1024;

impl CaptureController<'_> {
    /// How long to wait if no order arrives; None: for ever.
    pub fn pause(&self) -> Option<Duration> {
        if self.stage == Stage::Waiting {
            return None;
        }
        if self.schedule.has_line() || !self.has_rested {
            return Some(Duration::ZERO);
        }
        let watch = if let NameWatch::Due(at) = self.watch { Some(at) } else { None };
        let end = self.captures.as_ref().and_then(Captures::next_end);
        let next = [Some(self.look), self.schedule.next_due(), watch, end].into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Does one visit, or, if none is due, what is done between visits.
    pub fn work(&mut self) {
        if self.stage == Stage::Waiting {
            return;
        }
        let now = Instant::now();
        if self.look <= now {
            self.rescan();
            self.bypasses_stale |= self.enforcer.retry();
            if let Some(plan) = self.enforcer.take_waiting() {
                self.enforce_plan(plan);
            }
            self.look = now + LOOK;
        }
        if matches!(self.watch, NameWatch::Due(at) if at <= now) {
            self.begin_watch(UNWATCHED);
        }
        match self.schedule.next(now) {
            Some(name) => {
                self.has_rested = false;
                self.visit(&name);
            }
            None => self.rest(),
        }
        if self.captures.as_ref().is_some_and(|captures| captures.garbage() > MOST_GARBAGE) {
            self.collect_garbage();
        }
        if self.reporter.is_due() {
            self.tell();
        }
    }

    /// Everything known has been done.
    fn rest(&mut self) {
        self.has_rested = true;
        self.collect_garbage();
        if std::mem::take(&mut self.bypasses_stale) {
            self.apply_bypasses();
        }
        if self.stage == Stage::Completing && !self.pods.values().any(|pod| pod.is_obscure) {
            self.complete();
        }
        self.tell();
        if self.stage == Stage::Begun {
            self.settle();
        }
    }

    /// Loads what all pods share, so that the first pod need not wait for that. An error is logged by the pods' visits, too.
    fn settle(&mut self) {
        self.stage = self.stage.after(Step::Settle);
        self.admit_exempt();
        self.enforcer.arm();
        self.reporter.settled();
        if let Ok(Err(error)) = self.captures().map(Captures::prepare) {
            tracing::warn!("no pod can be captured: {}", chain(&error));
        }
    }

    /// What fails is tried again after the next look for changes.
    fn complete(&mut self) {
        let wanted = self.namespaces.cookies();
        // An error means that nothing can be captured, so there is nothing to remove.
        let completed = self.captures().ok().map(|captures| captures.complete_but(&wanted));
        let enforced = self.enforcer.complete(&self.policy_owners(), &self.exempt);
        if let Some(Err(error)) = &completed {
            tracing::error!("what an earlier agent has captured besides is not removed: {}", chain(error));
        }
        if let Err(error) = &enforced {
            tracing::error!("pods that an earlier agent enforced besides still are: {}", chain(error));
        }
        if enforced.is_ok() && !matches!(completed, Some(Err(_))) {
            self.stage = self.stage.after(Step::Complete);
        }
        self.bypasses_stale = true;
        self.apply_bypasses();
    }

    fn collect_garbage(&mut self) {
        if let Some(Err(error)) = self.captures.as_mut().map(Captures::collect_garbage) {
            tracing::warn!("what is not in force any more is not erased yet: {}", chain(&error));
        }
    }

    /// Admits the exempt namespaces; their names may stand for other ones than before.
    pub fn admit_exempt(&mut self) {
        if !self.settings.arm {
            return;
        }
        let found = self.settings.exempt.iter().filter_map(|netns| cookie_of(&netns.path()).ok()).collect();
        let before = std::mem::replace(&mut self.exempt, found);
        let gone = before.difference(&self.exempt).filter(|cookie| self.namespaces.get(**cookie).is_none());
        gone.for_each(|cookie| drop(self.enforcer.remove(*cookie)));
        for cookie in &self.exempt {
            if let Err(error) = self.enforcer.admit(*cookie) {
                tracing::error!("a network namespace that is exempt may not talk: {}", chain(&error));
            }
        }
    }

    /// Looks for changes that inotify may have missed, and repeats what has failed.
    fn rescan(&mut self) {
        if !matches!(self.stage, Stage::Waiting | Stage::Begun) {
            self.admit_exempt();
        }
        std::mem::take(&mut self.doomed).into_iter().for_each(|cookie| self.remove(cookie));
        let has_changed = |pod: &Pod| pod.seen.is_some_and(|(seen, _)| identity::named(&pod.path) != Some(seen));
        let is_blind = self.blind.is_some();
        let changed = self.pods.iter().filter(|(_, pod)| is_blind || has_changed(pod)).map(|(name, _)| name.clone());
        changed.for_each(|name| self.schedule.enqueue(name));
    }

    fn tell(&mut self) {
        let tables = self.captures.as_ref().map(Captures::fill).unwrap_or_default().into_iter();
        let tables = tables.map(|fill| Fill { table: fill.table.into(), used: fill.used as u32, size: fill.room });
        let figures = Figures {
            tables: tables.chain(self.enforcer.fill()).collect(),
            ended: self.ended,
            enforced: self.enforcer.count(),
            admitted: self.enforcer.admitted(),
            trouble: self.enforcer.trouble(),
        };
        self.reporter.tell(figures);
    }

    /// Adds the controller's findings.
    pub fn check(&self, mut check: Check) -> Result<Check> {
        let is_complete = self.stage == Stage::Complete;
        let captured = self.captures.as_ref().map(|captures| captures.differences(is_complete));
        let differences = captured.unwrap_or(Ok(Vec::new()))?;
        check.captures = self.captures.as_ref().map_or(0, |captures| captures.namespaces().len());
        let named = |cookie| match self.namespaces.get(cookie).and_then(|namespace| namespace.applied.as_ref()) {
            Some(capture) => format!("Capture {}", capture.name),
            None if cookie == 0 => "policies".into(),
            None => format!("namespace {cookie}"),
        };
        let enforced = self.enforcer.differences(is_complete)?;
        check.enforced = self.enforcer.count();
        check.problems.extend(self.enforcer.trouble());
        let differences = differences.into_iter().map(|(cookie, what)| (cookie, what.to_string())).chain(enforced);
        check.differences.extend(differences.map(|(cookie, what)| format!("{}: {what}", named(cookie))));
        check.admitted = self.enforcer.admitted();
        if check.admitted.is_some() {
            check.barred = self.barred();
        }
        Ok(check)
    }

    /// Network namespaces of this node that are not admitted, by their files.
    fn barred(&self) -> Vec<String> {
        let is_barred = |path: &PathBuf| {
            cookie_of(path).is_ok_and(|cookie| cookie != self.node && !self.enforcer.is_admitted(cookie))
        };
        walk::namespaces().into_iter().filter(is_barred).map(|path| path.display().to_string()).collect()
    }
}
