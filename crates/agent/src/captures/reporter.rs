//! Reports the status of captured pods to the node: only changes, and many pods at a time.

use super::{CaptureStatus, Figures, Report};
use crate::message::Message;
use sidestep_mesh::object::Name;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Changes that are reported together.
const BATCH: usize = 1024;
/// A pod that waits for its capture need not wait for those behind it.
const DELAY: Duration = Duration::from_millis(20);

pub struct Reporter<'a> {
    inbox: &'a Sender<Message>,
    news: BTreeMap<Name, Option<CaptureStatus>>,
    told: Figures,
    last: Instant,
}

impl Reporter<'_> {
    pub fn new(inbox: &Sender<Message>) -> Reporter<'_> {
        Reporter { inbox, news: BTreeMap::new(), told: Figures::default(), last: Instant::now() }
    }

    /// None: the pod is not wanted any more.
    pub fn note(&mut self, name: &Name, status: Option<CaptureStatus>) {
        self.news.insert(name.clone(), status);
    }

    /// Whether news should not wait until everything is done.
    pub fn is_due(&self) -> bool {
        !self.news.is_empty() && (self.news.len() >= BATCH || self.last.elapsed() >= DELAY)
    }

    pub fn tell(&mut self, figures: Figures) {
        self.last = Instant::now();
        if self.news.is_empty() && self.told == figures {
            return;
        }
        if let Some(trouble) = figures.trouble.as_ref().filter(|trouble| self.told.trouble.as_ref() != Some(trouble)) {
            tracing::error!("{trouble}");
        }
        self.told = figures.clone();
        let news = std::mem::take(&mut self.news).into_iter().collect();
        self.send(Report::News(news, figures));
    }

    pub fn settled(&self) {
        self.send(Report::Settled);
    }

    fn send(&self, report: Report) {
        let _ = self.inbox.send(Message::Captured(report)); // fails if the agent is about to end
    }
}
