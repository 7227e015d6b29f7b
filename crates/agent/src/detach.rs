//! `sidestep agent --detach`: removes everything.

use crate::answer::{self, SocketError};
use crate::args::Args;
use crate::lock::{self, Held, Lock, LockError};
use crate::settings;
use sidestep_agent_api::{AskError, Question, ask};
use sidestep_ebpf::error::Error;
use sidestep_ebpf::services;
use std::path::Path;
use std::time::{Duration, Instant};

/// An agent that was asked to end does so right after its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why something remains.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{held}; name its --socket, or end it first (SIGTERM). Nothing is removed")]
    Running { held: Held, source: AskError },
    #[error("{0}, and does not end: see its log")]
    DoesNotEnd(Held),
    #[error(transparent)]
    Programs(#[from] Error),
    #[error(transparent)]
    Socket(#[from] SocketError),
}

pub fn detach(args: &Args) -> Result<(), DetachError> {
    let (pins, socket) = settings::places(args);
    let _alone = stop_running(&pins, &socket)?;
    services::remove(&pins)?;
    // Fails if another kind of programs has pins there.
    let _ = std::fs::remove_dir(&pins);
    // An agent that still answers has other pins, and keeps its socket.
    if answer::is_answered(&socket) { Ok(()) } else { Ok(answer::remove(&socket)?) }
}

/// Makes sure that no agent is programming the tables that are about to be removed.
fn stop_running(pins: &Path, socket: &Path) -> Result<Lock, DetachError> {
    if let Some(lock) = Lock::acquire(pins)? {
        return Ok(lock);
    }
    let held = Held::new(pins);
    if let Err(source) = ask(socket, &Question::Stop { detach: true, pins: lock::identity(pins) }) {
        return Err(DetachError::Running { held, source });
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Lock::acquire(pins)? {
            Some(lock) => return Ok(lock),
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            None => return Err(DetachError::DoesNotEnd(held)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_error::chain;

    #[test]
    fn who_cannot_detach_is_told_who_runs_what_to_do_and_why() {
        let (held, at) = (Held::new(Path::new("/nonexistent/pins")), "/run/agent.sock".into());
        let source = AskError::Nobody { at, source: std::io::Error::from_raw_os_error(2) };
        let told = chain(&DetachError::Running { held, source }).to_string();
        let (first, then) = told.split_once(". Nothing is removed: ").unwrap();
        let running = "an agent runs already with the pins /nonexistent/pins (in another PID namespace)";
        assert_eq!(first, format!("{running}; name its --socket, or end it first (SIGTERM)"));
        assert!(then.starts_with("no agent answers at /run/agent.sock"), "{told}");
        assert!(then.ends_with(": No such file or directory (os error 2)"), "{told}");
    }
}
