//! One agent for one socket: two would undo each other's work.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;

/// Held as long as it lives.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Beside the socket, whose directory is made.
    pub fn take(socket: &Path) -> Result<Lock, String> {
        let path = socket.with_extension("lock");
        let cannot = |error: &dyn std::fmt::Display| format!("{}: cannot lock it: {error}", path.display());
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|error| cannot(&error))?;
        }
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(|error| cannot(&error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(format!(
                "an agent runs already, with the socket {}: end it first (SIGTERM), or choose another --socket and --pins",
                socket.display()
            )),
            Err(error) => Err(cannot(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_agents_the_second_is_told_so() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("run/agent.sock");
        let first = Lock::take(&socket).unwrap();
        assert!(Lock::take(&socket).is_err_and(|error| error.contains("runs already")));
        drop(first);
        assert!(Lock::take(&socket).is_ok());
    }
}
