//! When connections are due next.

use rustix::time::{ClockId, clock_gettime};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Microseconds of CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Deadlines in microseconds of CLOCK_MONOTONIC, one for each connection.
///
/// Nearly every segment moves a deadline away, and that costs nothing: the heap has one entry for each connection, which is moved
/// only once its time has come.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    of: Vec<Timer>,
}

#[derive(Clone, Copy, Default)]
struct Timer {
    /// When the connection is due.
    due: Option<u64>,
    /// The time of its valid entry in the heap, which is no later than `due`.
    entry: Option<u64>,
}

impl Timers {
    /// The connection is due then; None: only when something happens.
    pub fn set(&mut self, id: u32, due: Option<u64>) {
        let at = id as usize;
        if self.of.len() <= at {
            self.of.resize(at + 1, Timer::default());
        }
        self.of[at].due = due;
        if let Some(due) = due
            && self.of[at].entry.is_none_or(|entry| entry > due)
        {
            self.of[at].entry = Some(due);
            self.heap.push(Reverse((due, id)));
        }
    }

    /// A connection that is due now.
    pub fn pop(&mut self, now: u64) -> Option<u32> {
        let at = self.next()?;
        (at <= now).then(|| {
            let Reverse((_, id)) = self.heap.pop()?;
            self.of[id as usize] = Timer::default();
            Some(id)
        })?
    }

    /// When the next one is due.
    pub fn next(&mut self) -> Option<u64> {
        while let Some(&Reverse((at, id))) = self.heap.peek() {
            let timer = &mut self.of[id as usize];
            if timer.entry == Some(at) && timer.due == Some(at) {
                return Some(at);
            }
            self.heap.pop();
            if timer.entry == Some(at) {
                timer.entry = timer.due;
                self.heap.extend(timer.due.map(|due| Reverse((due, id))));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_is_due_once_at_its_last_deadline() {
        let mut timers = Timers::default();
        timers.set(1, Some(50));
        timers.set(2, Some(30));
        timers.set(1, Some(20));
        timers.set(2, Some(40));
        timers.set(3, Some(10));
        timers.set(3, None);
        assert_eq!(timers.next(), Some(20));
        assert_eq!(timers.pop(19), None);
        assert_eq!((timers.pop(45), timers.pop(45), timers.pop(100)), (Some(1), Some(2), None));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn whatever_is_set_is_popped_as_by_a_list() {
        let mut timers = Timers::default();
        let mut list = [None::<u64>; 5];
        let mut dice = 1u64;
        for now in 0..20_000u64 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (id, step) = ((dice >> 33) as usize % 5, dice >> 40 & 63);
            let due = (step > 4).then_some(now + step);
            (list[id], _) = (due, timers.set(id as u32, due));
            assert_eq!(timers.next(), list.iter().flatten().min().copied());
            while let Some(id) = timers.pop(now) {
                assert!(list[id as usize].take().is_some_and(|due| due <= now));
            }
            assert!(list.iter().flatten().all(|due| *due > now));
            assert!(timers.heap.len() <= 200, "the heap does not grow");
        }
    }
}
