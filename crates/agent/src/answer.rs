//! The socket at which `sidestep service` and `sidestep explain` ask.

use crate::message::Asker;
use sidestep_agent_api::Reply;
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// A question is a line; who takes longer for it than this has lost interest.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_QUESTION: u64 = 64 * 1024;

/// Where an earlier agent listened. Whoever may connect can end the agent: only its own user may.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers one after the other, for ever.
pub fn serve(listener: &UnixListener, asker: &Asker) {
    for stream in listener.incoming() {
        match stream.and_then(|stream| answer(stream, asker)) {
            Ok(()) => {}
            Err(error) => tracing::debug!("a question was not answered: {error}"),
        }
    }
}

fn answer(mut stream: UnixStream, asker: &Asker) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut question = Vec::new();
    (&stream).take(LONGEST_QUESTION).read_to_end(&mut question)?;
    let reply: Reply = match serde_json::from_slice(&question) {
        Ok(question) => asker.ask(question),
        Err(error) => Err(format!("this is no question that it understands: {error}")),
    };
    stream.write_all(&serde_json::to_vec(&reply)?)
}
