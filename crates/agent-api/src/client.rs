//! The client.

use crate::{Answer, Question, Refusal, Reply};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Only root has access to it.
pub const DEFAULT_SOCKET: &str = "/run/sidestep/agent.sock";

/// An agent answers within milliseconds, but takes longer while it is writing large tables.
const PATIENCE: Duration = Duration::from_secs(30);

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

/// Asks the agent that listens at `socket`.
pub fn ask(socket: &Path, question: &Question) -> Result<Answer, AskError> {
    let at = || socket.to_path_buf();
    let mut stream = UnixStream::connect(socket).map_err(|source| AskError::Nobody { at: at(), source })?;
    let reply = exchange(&mut stream, question).map_err(|source| AskError::NoAnswer { at: at(), source })?;
    let reply: Reply = serde_json::from_slice(&reply).map_err(|source| AskError::OtherVersion { at: at(), source })?;
    Ok(reply?)
}

fn exchange(stream: &mut UnixStream, question: &Question) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(question)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

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
}
