//! Asking.

use crate::{Answer, Question, Reply};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Only root can reach it.
pub const DEFAULT_SOCKET: &str = "/run/sidestep/agent.sock";

/// An agent answers within milliseconds; one that is just programming very much takes a while.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks the agent that listens at `socket`. The error says what to do.
pub fn ask(socket: &Path, question: &Question) -> Result<Answer, String> {
    let at = socket.display();
    let mut stream = UnixStream::connect(socket).map_err(|error| {
        format!(
            "no agent answers at {at} ({error}): start one with `sidestep agent`, or name its --socket. \
             Connections are balanced all the same if one has run before."
        )
    })?;
    let reply =
        exchange(&mut stream, question).map_err(|error| format!("the agent at {at} did not answer: {error}"))?;
    let reply: Reply = serde_json::from_slice(&reply)
        .map_err(|error| format!("the agent at {at} is of another version than this command: {error}"))?;
    reply.map_err(|why| format!("the agent says: {why}"))
}

fn exchange(stream: &mut UnixStream, question: &Question) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(question)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(reply)
}
