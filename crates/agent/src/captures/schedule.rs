//! Which pod is visited next: one whose time has come, else the first that waits in line.

use sidestep_mesh::object::Name;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Instant;

#[derive(Default)]
pub struct Schedule {
    line: VecDeque<Name>,
    /// Who in the line has not been visited since it joined.
    waiting: HashSet<Name>,
    due: BTreeSet<(Instant, Name)>,
    times: HashMap<Name, Instant>,
}

impl Schedule {
    /// To be visited when nothing is due.
    pub fn enqueue(&mut self, name: Name) {
        if self.waiting.insert(name.clone()) {
            self.line.push_back(name);
        }
    }

    /// To be visited then, unless a visit is due earlier anyway.
    pub fn visit_by(&mut self, name: &Name, at: Instant) {
        if self.times.get(name).is_none_or(|due| *due > at) {
            self.visit_at(name, at);
        }
    }

    /// To be visited then, and not when it was due before.
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

    /// Who is to be visited now: one visit answers all that asked for one.
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

    /// Somebody waits in line.
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
