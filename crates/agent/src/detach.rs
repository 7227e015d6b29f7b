//! `sidestep agent --detach`: removes everything.

use crate::answer::{self, SocketError};
use crate::args::Args;
use crate::lock::{self, Held, Lock, LockError};
use crate::settings;
use sidestep_agent_api::{AskError, Question, ask};
use sidestep_ebpf::error::Error;
use sidestep_ebpf::services;
use std::io;
use std::path::{Path, PathBuf};
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
    #[error("--empty: cannot remove {}", path.display())]
    Empty { path: PathBuf, source: io::Error },
}

pub fn detach(args: &Args) -> Result<(), DetachError> {
    let (pins, socket) = settings::places(args);
    let _alone = stop_running(&pins, &socket)?;
    services::remove(&pins)?;
    // Fails if another kind of programs has pins there.
    let _ = std::fs::remove_dir(&pins);
    // An agent that still answers has other pins, and keeps its socket.
    if !answer::is_answered(&socket) {
        answer::remove(&socket)?;
    }
    args.empty.as_deref().map_or(Ok(()), empty)
}

/// Removes all that is in the directory. Symbolic links are not followed.
fn empty(directory: &Path) -> Result<(), DetachError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(cannot_remove(directory))?,
    };
    for entry in entries {
        let entry = entry.map_err(cannot_remove(directory))?;
        let path = entry.path();
        let is_directory = entry.file_type().map_err(cannot_remove(&path))?.is_dir();
        let removed = if is_directory { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(cannot_remove(&path))?;
    }
    Ok(())
}

fn cannot_remove(path: &Path) -> impl FnOnce(io::Error) -> DetachError {
    let path = path.into();
    move |source| DetachError::Empty { path, source }
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
    fn what_the_parts_kept_for_each_other_is_removed_and_what_links_lead_to_is_not() {
        let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("kept"), "").unwrap();
        std::fs::create_dir_all(run.path().join("rings/events")).unwrap();
        std::fs::write(run.path().join("rings/namespaces"), "shop").unwrap();
        std::os::unix::fs::symlink(other.path(), run.path().join("link")).unwrap();
        empty(run.path()).unwrap();
        assert_eq!(std::fs::read_dir(run.path()).unwrap().count(), 0);
        assert!(other.path().join("kept").exists());
        empty(&run.path().join("nowhere")).unwrap();
    }

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
