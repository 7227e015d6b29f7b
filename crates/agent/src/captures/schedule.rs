//! Which pod is visited next: one whose time has come, else the first in the queue.

use sidestep_mesh::object::Name;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Instant;

#[derive(Default)]
pub struct Schedule {
    line: VecDeque<Name>,
    /// Pods in the queue that have not been visited since they joined it.
    waiting: HashSet<Name>,
    due: BTreeSet<(Instant, Name)>,
    times: HashMap<Name, Instant>,
}

impl Schedule {
    /// Adds a pod to the queue, which is served when nothing is due.
    pub fn enqueue(&mut self, name: Name) {
        if self.waiting.insert(name.clone()) {
            self.line.push_back(name);
        }
    }

    /// Makes a visit due at that time, unless one is due earlier.
    pub fn visit_by(&mut self, name: &Name, at: Instant) {
        if self.times.get(name).is_none_or(|due| *due > at) {
            self.visit_at(name, at);
        }
    }

    /// Makes a visit due at that time, in place of an earlier or later one.
    pub fn visit_at(&mut self, name: &Name, at: Instant) {
        self.cancel(name);
        self.times.insert(name.clone(), at);
        self.due.insert((at, name.clone()));
    }

    fn cancel(&mut self, name: &Name) {
        if let Some(at) = self.times.remove(name) {
            self.due.remove(&(at, name.clone()));
        }
    }

    pub fn unschedule(&mut self, name: &Name) {
        self.cancel(name);
        self.waiting.remove(name);
    }

    /// The pod to visit now; one visit serves all requests for it.
    pub fn next(&mut self, now: Instant) -> Option<Name> {
        let name = match self.due.first() {
            Some((at, name)) if *at <= now => name.clone(),
            _ => self.next_in_line()?,
        };
        self.unschedule(&name);
        Some(name)
    }

    fn next_in_line(&mut self) -> Option<Name> {
        std::iter::from_fn(|| self.line.pop_front()).find(|name| self.waiting.contains(name))
    }

    /// Whether a pod is in the queue.
    pub fn has_line(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn name(text: &str) -> Name {
        Name::new("default", text)
    }

    #[test]
    fn who_is_due_goes_before_the_line() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        schedule.enqueue(name("a"));
        schedule.enqueue(name("b"));
        schedule.enqueue(name("a"));
        schedule.visit_by(&name("c"), now);
        schedule.visit_by(&name("d"), later);
        let visited: Vec<Name> = std::iter::from_fn(|| schedule.next(now)).collect();
        assert_eq!(visited, [name("c"), name("a"), name("b")]);
        assert!(!schedule.has_line());
        assert_eq!(schedule.next_due(), Some(later));
        assert_eq!(schedule.next(later), Some(name("d")));
    }

    #[test]
    fn one_visit_answers_all_that_asked_for_one() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.enqueue(name("a"));
        schedule.visit_by(&name("a"), now);
        assert_eq!(schedule.next(now), Some(name("a")));
        assert_eq!(schedule.next(now), None);
        schedule.enqueue(name("a"));
        assert_eq!((schedule.next(now), schedule.next(now)), (Some(name("a")), None));
    }

    #[test]
    fn the_earlier_time_counts_unless_it_is_replaced() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let [soon, later] = [1, 2].map(|seconds| now + Duration::from_secs(seconds));
        schedule.visit_by(&name("a"), soon);
        schedule.visit_by(&name("a"), later);
        assert_eq!(schedule.next_due(), Some(soon));
        schedule.visit_at(&name("a"), later);
        assert_eq!((schedule.next(soon), schedule.next_due()), (None, Some(later)));
        schedule.unschedule(&name("a"));
        assert_eq!((schedule.next(later), schedule.next_due()), (None, None));
    }
}
