//! Connections that may have something to send.

use std::collections::VecDeque;

/// Numbers of connections, each once, in the order in which they came.
#[derive(Default)]
pub struct Due {
    queue: VecDeque<u32>,
    /// By number: whether it is in the queue.
    is_queued: Vec<bool>,
}

impl Due {
    /// Adds a connection, unless it is there.
    pub fn insert(&mut self, id: u32) {
        let at = id as usize;
        if self.is_queued.len() <= at {
            self.is_queued.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.is_queued[at], true) {
            self.queue.push_back(id);
        }
    }

    /// Takes the first one.
    pub fn pop(&mut self) -> Option<u32> {
        let id = self.queue.pop_front()?;
        self.is_queued[id as usize] = false;
        Some(id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_once_in_order() {
        let mut due = Due::default();
        [7, 2, 7].into_iter().for_each(|id| due.insert(id));
        assert_eq!((due.len(), due.pop()), (2, Some(7)));
        due.insert(7);
        assert_eq!((due.pop(), due.pop(), due.pop()), (Some(2), Some(7), None));
    }
}
