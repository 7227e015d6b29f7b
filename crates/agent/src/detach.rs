//! `sidestep agent --detach`: removes everything.

use crate::answer::{self, SocketError};
use crate::args::Args;
use crate::lock::{self, Held, Lock, LockError};
use crate::settings::{self, SettingsError};
use sidestep_agent_api::{AskError, Question, ask};
use sidestep_ebpf::error::Error;
use sidestep_ebpf::services;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An agent that was asked to end does so right after its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the chart's parts keep for each other in a directory of the node, besides the agent's socket: admitted pods, the broker's
/// socket, and the files between agent and NRI plugin.
const KEPT: [&str; 3] = ["admissions", "member", "rings"];

/// Why something remains.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
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
    let (pins, socket) = settings::places(args)?;
    // Where there is no directory nobody has anything. The lock would make one, and mount a file system for it. What cannot be looked
    // at is an error below.
    let _alone = if pins.try_exists().unwrap_or(true) {
        let alone = stop_running(&pins, &socket)?;
        services::remove(&pins)?;
        // Fails if another kind of programs has pins there.
        let _ = std::fs::remove_dir(&pins);
        Some(alone)
    } else {
        println!("{}: no agent has loaded anything here", pins.display());
        None
    };
    // An agent that still answers has other pins, and keeps its socket.
    if !answer::is_answered(&socket) {
        answer::remove(&socket)?;
    }
    args.empty.as_deref().map_or(Ok(()), empty)
}

/// Removes what is kept there. Others may have files there, too, such as a broker that is no pod: these stay. So does a link with one of
/// the names: the parts make directories.
fn empty(directory: &Path) -> Result<(), DetachError> {
    for path in KEPT.map(|name| directory.join(name)) {
        match remove_directory(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DetachError::Empty { path, source: error });
            }
            _ => {}
        }
    }
    Ok(())
}

fn remove_directory(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() { std::fs::remove_dir_all(path) } else { Ok(()) }
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
    use clap::Parser;
    use sidestep_error::chain;

    fn parsed(words: &[&str]) -> Args {
        Args::try_parse_from(["agent", "--detach"].iter().chain(words)).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn what_the_parts_kept_for_each_other_is_removed_and_what_is_somebody_elses_is_not() {
        let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = |name: &str| run.path().join(name);
        std::fs::write(other.path().join("kept"), "").unwrap();
        for directory in ["rings/events", "member", "of-another/rings"] {
            std::fs::create_dir_all(of(directory)).unwrap();
        }
        std::fs::write(of("rings/namespaces"), "shop").unwrap();
        std::os::unix::fs::symlink(other.path(), of("member/link")).unwrap();
        std::os::unix::fs::symlink(other.path(), of("admissions")).unwrap();
        // As a broker of the Debian package has it.
        let _broker = std::os::unix::net::UnixListener::bind(of("broker")).unwrap();
        empty(run.path()).unwrap();
        let mut left: Vec<_> = std::fs::read_dir(run.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["admissions", "broker", "of-another"]);
        assert!(of("of-another/rings").exists() && other.path().join("kept").exists());
        empty(&of("nowhere")).unwrap();
    }

    #[test]
    fn where_nothing_is_nothing_is_made() {
        let run = tempfile::tempdir().unwrap();
        let of = |name: &str| run.path().join(name).to_str().unwrap().to_string();
        detach(&parsed(&["--pins", &of("pins"), "--socket", &of("agent.sock")])).unwrap();
        assert_eq!(std::fs::read_dir(run.path()).unwrap().count(), 0);
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
