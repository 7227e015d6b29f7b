//! The socket that `sidestep service`, `sidestep explain` and the CNI plugin query.

use crate::admission::Admissions;
use crate::message::{QueryHandle, refused};
use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sidestep_agent_api::{Admission, Question, Reply};
use sidestep_error::chain;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for reading the question (one line), and again for writing the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest names all pods of a large node.
const LONGEST_QUESTION: u64 = 256 * 1024;
/// Most clients that wait to be accepted.
const BACKLOG: i32 = 128;

/// Why the socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("an agent with other pins listens at {} already: choose another --socket", .0.display())]
    InUse(PathBuf),
    #[error("cannot listen at {}", path.display())]
    Listen { path: PathBuf, source: io::Error },
    #[error("cannot remove {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("{} exists and is not a socket: choose another --socket, or remove it", .0.display())]
    NoSocket(PathBuf),
}

/// Listens, in place of an earlier agent if need be. A client can end the agent, so only the agent's own user may connect.
pub fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    if is_answered(path) {
        return Err(SocketError::InUse(path.into()));
    }
    remove(path)?;
    bind(path).map_err(|source| SocketError::Listen { path: path.into(), source })
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let socket = bound(path)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The socket has its mode before it has its name: a mode that is set later lets strangers connect until then, whatever the umask
/// permits. A umask would be the whole process's.
fn bound(path: &Path) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Whether an agent listens there.
pub fn is_answered(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// Removes the file only if it is a socket: a mistyped option must not cost another file.
pub fn remove(path: &Path) -> Result<(), SocketError> {
    let cannot = |source| SocketError::Remove { path: path.into(), source };
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path).map_err(cannot),
        Ok(_) => Err(SocketError::NoSocket(path.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(cannot(error)),
    }
}

/// Held while a client is answered, so that the agent does not end in the middle of an answer.
pub type Busy = Arc<Mutex<()>>;

/// Who answers.
pub struct Desk {
    pub queries: QueryHandle,
    /// None: the main thread says that no pods are admitted.
    pub admissions: Option<Arc<Admissions>>,
}

impl Desk {
    /// Answers clients one after the other, for ever. Requests of the CNI plugin, which may take long, are answered by threads of
    /// their own.
    pub fn serve(&self, listener: &UnixListener, busy: &Busy) {
        for stream in listener.incoming() {
            let _busy = busy.lock().unwrap_or_else(PoisonError::into_inner);
            match stream.and_then(|stream| self.answer(stream)) {
                Ok(()) => {}
                Err(error) => tracing::debug!("a question was not answered: {}", chain(&error)),
            }
        }
    }

    fn answer(&self, stream: UnixStream) -> io::Result<()> {
        let mut question = Vec::new();
        Timed::new(&stream, PATIENCE).take(LONGEST_QUESTION).read_to_end(&mut question)?;
        match (serde_json::from_slice(&question), &self.admissions) {
            (Ok(Question::Admission(request)), Some(admissions)) => admit(admissions, request, stream),
            (Ok(question), _) => reply(&stream, &self.queries.ask(question)),
            (Err(error), _) => reply(&stream, &Err(refused(&NotUnderstood(error)))),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the agent does not understand this query")]
struct NotUnderstood(#[source] serde_json::Error);

fn admit(admissions: &Arc<Admissions>, request: Admission, stream: UnixStream) -> io::Result<()> {
    let turn = match admissions.begin() {
        Ok(turn) => turn,
        Err(error) => return reply(&stream, &Err(refused(&error))),
    };
    let answer = move || {
        // The client may have gone.
        let _ = reply(&stream, &turn.answer(request));
    };
    std::thread::Builder::new().name("admission".into()).spawn(answer).map(drop)
}

fn reply(stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    Timed::new(stream, PATIENCE).write_all(&serde_json::to_vec(reply)?)
}

/// Limits the total time of all reads and writes: a slow client delays the others for so long at most.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Timed<'_> {
    fn new(stream: &UnixStream, patience: Duration) -> Timed<'_> {
        Timed { stream, until: Instant::now() + patience }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_comes_in_drops_is_not_waited_for() {
        let (mut slow, served) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            // Ends when the other side has closed the connection.
            scope.spawn(move || {
                while slow.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let begun = Instant::now();
            let error = Timed::new(&served, Duration::from_millis(200)).read_to_end(&mut Vec::new()).unwrap_err();
            assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
            assert!(begun.elapsed() < Duration::from_secs(5));
            drop(served);
        });
    }

    #[test]
    #[allow(deprecated)] // The other call is the same, and unsafe because of what it does to tables of descriptors: not with this flag.
    fn no_stranger_can_connect_from_the_first_moment_on_whatever_the_umask() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.sock");
        let bind_without_umask = || {
            // This thread alone has another umask from now on, and it ends.
            rustix::thread::unshare(rustix::thread::UnshareFlags::FS).unwrap();
            rustix::process::umask(Mode::empty());
            bound(&path)
        };
        let _socket = std::thread::scope(|scope| scope.spawn(bind_without_umask).join()).unwrap().unwrap();
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    }

    #[test]
    fn only_a_socket_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(listen(&path).unwrap_err().to_string().contains("exists and is not a socket: choose another --socket"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();
        let first = listen(&path).unwrap();
        assert!(listen(&path).unwrap_err().to_string().contains("listens at"));
        drop(first);
        listen(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }
}
