//! The client.

use crate::{Answer, Question, Refusal, Reply};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Only root has access to it.
pub const DEFAULT_SOCKET: &str = "/run/sidestep/agent.sock";

/// An agent answers within milliseconds, but takes longer while it is writing large tables.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ten times the metrics of a large cluster.
const LONGEST_ANSWER: u64 = 256 << 20;

/// Why there is no answer, and what to do. The variants are described by their messages.
#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(
        "no agent answers at {} (if one has run before, connections are still balanced): start one with `sidestep \
         agent`, or name its --socket",
        at.display()
    )]
    Nobody { at: PathBuf, source: io::Error },
    #[error("the agent at {} did not answer", at.display())]
    NoAnswer { at: PathBuf, source: io::Error },
    #[error("the agent at {} has another version than this command: use programs of one release", at.display())]
    OtherVersion { at: PathBuf, source: serde_json::Error },
    #[error("the agent says")]
    Refused(#[from] Refusal),
}

/// How long the agent may take, and how much it may say.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For all of it: connection, question and answer.
    pub time: Duration,
    /// Length of the answer.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { time: PATIENCE, bytes: LONGEST_ANSWER }
    }
}

/// Asks the agent that listens at `socket`.
pub fn ask(socket: &Path, question: &Question) -> Result<Answer, AskError> {
    ask_within(socket, question, Limits::default())
}

/// Asks the agent that listens at `socket`, which may be stopped or replaced by another program.
pub fn ask_within(socket: &Path, question: &Question, limits: Limits) -> Result<Answer, AskError> {
    let (at, until) = (|| socket.to_path_buf(), Instant::now() + limits.time);
    let stream = connect(socket, limits.time).map_err(|source| AskError::Nobody { at: at(), source })?;
    let exchange = exchange(&stream, question, limits.bytes, until);
    let reply = exchange.map_err(|source| AskError::NoAnswer { at: at(), source })?;
    let reply: Reply = serde_json::from_slice(&reply).map_err(|source| AskError::OtherVersion { at: at(), source })?;
    Ok(reply?)
}

/// A stopped process accepts nothing: once its queue is full, an unlimited connect(2) would wait for ever. The limit is also
/// that of each write.
fn connect(socket: &Path, limit: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&stream, sockopt::Timeout::Send, Some(limit))?;
    rustix::net::connect(&stream, &address)?;
    Ok(stream.into())
}

fn exchange(mut stream: &UnixStream, question: &Question, most: u64, until: Instant) -> io::Result<Vec<u8>> {
    stream.write_all(&serde_json::to_vec(question)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = Vec::new();
    Timed { stream, until }.take(most).read_to_end(&mut reply)?;
    Ok(reply)
}

/// Limits the total time of all reads.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;
    use std::os::unix::net::UnixListener;

    #[test]
    fn who_finds_no_agent_is_told_what_to_do() {
        let error = ask(Path::new("/nonexistent/agent.sock"), &Question::Status).unwrap_err();
        let told = error.to_string();
        assert!(told.starts_with("no agent answers at /nonexistent/agent.sock") && told.contains("`sidestep agent`"));
        assert_eq!(error.source().unwrap().to_string(), "No such file or directory (os error 2)");
    }

    #[test]
    fn the_agents_own_words_are_the_source() {
        let reply: Reply = serde_json::from_str(r#"{"Err":"there is no Service a/b"}"#).unwrap();
        let error = AskError::from(reply.unwrap_err());
        assert_eq!(
            (error.to_string().as_str(), error.source().unwrap().to_string().as_str()),
            ("the agent says", "there is no Service a/b")
        );
    }

    /// A listener with a queue for two connections.
    fn listener(at: &Path) -> UnixListener {
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(at).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        listener.into()
    }

    /// The time is that of all reads together.
    #[test]
    fn an_agent_that_dribbles_or_sleeps_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("agent.sock");
        let listener = listener(&socket);
        let limits = Limits { time: Duration::from_millis(300), bytes: 1 << 20 };
        let refused = || ask_within(&socket, &Question::Status, limits).unwrap_err();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                while stream.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let begun = Instant::now();
            assert!(matches!(refused(), AskError::NoAnswer { .. }));
            assert!(begun.elapsed() < Duration::from_secs(5));
        });
        // Nobody accepts: connections wait in the queue until it is full, and then connect(2) waits.
        let queued: Vec<_> = std::iter::from_fn(|| connect(&socket, Duration::from_millis(20)).ok()).collect();
        assert!(!queued.is_empty());
        assert!(matches!(refused(), AskError::Nobody { .. }));
    }

    #[test]
    fn an_answer_without_end_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("agent.sock");
        let listener = listener(&socket);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                while stream.write_all(&[b'['; 4096]).is_ok() {}
            });
            let limits = Limits { time: Duration::from_secs(60), bytes: 1 << 16 };
            let error = ask_within(&socket, &Question::Status, limits).unwrap_err();
            assert!(matches!(error, AskError::OtherVersion { .. }), "{error}");
        });
    }
}
