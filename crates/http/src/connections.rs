//! The open connections of a port, and which of them a new one may replace.

use crate::asked::Asked;
use tokio::task::AbortHandle;

/// Open connections.
#[derive(Debug, Default)]
pub struct Connections {
    /// Ordered by age, the oldest first.
    open: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    task: AbortHandle,
    asked: Asked,
}

impl Connections {
    /// A new one, which ends with its task.
    pub fn add(&mut self, task: AbortHandle, asked: Asked) {
        self.open.push(Connection { task, asked });
    }

    /// How many there are.
    pub fn count(&mut self) -> usize {
        self.open.retain(|connection| !connection.task.is_finished());
        self.open.len()
    }

    /// Ends one for a new one. False: all have sent their requests, and none is for metrics.
    pub fn replace_one(&mut self) -> bool {
        let Some(replaced) = self.replaceable() else { return false };
        self.open.remove(replaced).task.abort();
        true
    }

    /// The oldest that has not sent its request, or else the oldest that wants metrics: the new one may be a probe.
    fn replaceable(&self) -> Option<usize> {
        let oldest = |is_one: fn(&Asked) -> bool| self.open.iter().position(|connection| is_one(&connection.asked));
        oldest(|asked| !asked.is_noted()).or_else(|| oldest(Asked::is_for_metrics))
    }
}
