//! The broker's address: an abstract socket name, or a path.

use crate::private;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sidestep_abi::env::BROKER_PREFIX;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most connections that wait to be accepted.
pub(crate) const BACKLOG: i32 = 1024;

/// Where the broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Visible in one network namespace; disappears with the broker.
    Abstract(String),
    /// A file, for every network namespace that sees it.
    Path(PathBuf),
}

impl Address {
    /// Address of the effective user's broker.
    pub fn of_this_user() -> Address {
        let name = BROKER_PREFIX.trim_start_matches('@');
        Address::Abstract(format!("{name}{}", rustix::process::geteuid().as_raw()))
    }

    fn to_unix(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            Address::Path(path) => SocketAddrUnix::new(path.as_path()),
        }
    }

    /// Connects without waiting. EAGAIN: the backlog is full.
    pub fn connect(&self) -> Result<OwnedFd, Errno> {
        let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::connect(&socket, &self.to_unix()?)?;
        Ok(socket)
    }
}

/// sockaddr_un holds 108 bytes, one of which is the leading or terminating NUL.
const LONGEST: usize = 107;

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum AddressError {
    #[error("an abstract address needs a name after the @")]
    NoName,
    #[error("'{0}' is not an address: write @name or an absolute path")]
    Neither(String),
    #[error("'{0}' is too long for an address (at most {LONGEST} bytes)")]
    TooLong(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let address = match text.strip_prefix('@') {
            Some("") => return Err(AddressError::NoName),
            Some(name) => Address::Abstract(name.into()),
            None if text.starts_with('/') => Address::Path(text.into()),
            None => return Err(AddressError::Neither(text.into())),
        };
        if text.len() > LONGEST || text.as_bytes().contains(&0) {
            return Err(AddressError::TooLong(text.into()));
        }
        Ok(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Abstract(name) => write!(f, "@{name}"),
            Address::Path(path) => path.display().fmt(f),
        }
    }
}

/// A listening socket. A path is removed on drop.
pub struct Listener {
    /// The listening socket.
    pub socket: OwnedFd,
    path: Option<PathBuf>,
    /// Held for as long as the path is ours.
    _lock: Option<Lock>,
}

impl Listener {
    /// A listener at a path that nobody else uses, so without a lock.
    pub fn at_path(socket: OwnedFd, path: PathBuf) -> Listener {
        Listener { socket, path: Some(path), _lock: None }
    }

    /// A socket that a service manager holds, too. Its path and the path's mode are the manager's.
    pub(crate) fn of_manager(socket: OwnedFd) -> Listener {
        Listener { socket, path: None, _lock: None }
    }

    /// Sets whether other users may connect: the mode of a path. Abstract names have none.
    pub fn open_to_guests(&self, yes: bool) -> Result<(), Errno> {
        let mode = if yes { 0o666 } else { 0o600 };
        self.path.as_ref().map_or(Ok(()), |path| rustix::fs::chmod(path, Mode::from_raw_mode(mode)))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // If this fails, somebody has removed the path already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Why the broker cannot listen.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum ListenError {
    #[error("another broker already serves {0}; see `sidestep status --address {0}`")]
    InUse(Address),
    #[error("cannot {what} {address}")]
    Failed { what: &'static str, address: Address, source: io::Error },
    #[error("cannot remove the old socket {}", path.display())]
    Stale { path: PathBuf, source: io::Error },
    #[error("{} exists and is not a socket; choose another address or remove it", .0.display())]
    NotASocket(PathBuf),
}

/// Listens at `address`. `for_guests`: other users may connect (the mode of a path; abstract names have none).
pub fn listen(address: &Address, for_guests: bool) -> Result<Listener, ListenError> {
    let fail = |what, e: Errno| ListenError::Failed { what, address: address.clone(), source: e.into() };
    let in_use = || ListenError::InUse(address.clone());
    let lock = match address {
        Address::Abstract(_) => None,
        Address::Path(path) => {
            Some(Lock::take(&lock_path(path)).map_err(|e| if e == Errno::AGAIN { in_use() } else { fail("lock", e) })?)
        }
    };
    let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).map_err(|e| fail("make a socket for", e))?;
    if let Address::Path(path) = address {
        // A broker of another version may have locked another file.
        if address.connect().is_ok() {
            return Err(in_use());
        }
        remove_stale(path)?;
    }
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = address.to_unix().and_then(|unix| rustix::net::bind(&socket, &unix));
    rustix::process::umask(before);
    bound.map_err(|e| if e == Errno::ADDRINUSE { in_use() } else { fail("bind", e) })?;
    let path = match address {
        Address::Abstract(_) => None,
        Address::Path(path) => Some(path.clone()),
    };
    let listener = Listener { socket, path, _lock: lock };
    if for_guests {
        listener.open_to_guests(true).map_err(|e| fail("open to other users", e))?;
    }
    // Accepted sockets inherit this option: records that a member sends before it is accepted carry credentials, too.
    rustix::net::sockopt::set_socket_passcred(&listener.socket, true).map_err(|e| fail("listen at", e))?;
    rustix::net::listen(&listener.socket, BACKLOG).map_err(|e| fail("listen at", e))?;
    Ok(listener)
}

fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Where the lock for a path is: with the operator's socket. Pods have the directory of the path itself, in which one of them could
/// keep a lock forever: that needs no right to write.
fn lock_path(path: &Path) -> PathBuf {
    let beside = || {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        PathBuf::from(name)
    };
    let name = || private::name_of(&path.display().to_string(), &private::real(path).display().to_string());
    private::directory().map_or_else(beside, |dir| dir.join(format!(".{}.lock", name())))
}

/// The lock of a path, so that two brokers which start at once do not remove each other's socket. The file is removed on drop.
struct Lock {
    path: PathBuf,
    _file: OwnedFd,
}

impl Lock {
    fn take(path: &Path) -> Result<Lock, Errno> {
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            // Another broker may have removed it just before.
            let ours = rustix::fs::fstat(&file)?.st_ino;
            if rustix::fs::lstat(path).is_ok_and(|named| named.st_ino == ours) {
                return Ok(Lock { path: path.to_owned(), _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked, so it is the own one.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes a socket that a killed broker left behind. Any other file is not removed.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            std::fs::remove_file(path).map_err(|source| ListenError::Stale { path: path.into(), source })
        }
        Ok(_) => Err(ListenError::NotASocket(path.into())),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_error::chain;

    #[test]
    fn addresses_are_names_or_absolute_paths() {
        assert_eq!("@x".parse(), Ok(Address::Abstract("x".into())));
        assert_eq!("/run/x".parse(), Ok(Address::Path("/run/x".into())));
        for bad in ["", "@", "x", "./x", &format!("/{}", "x".repeat(107))] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_second_broker_is_told_who_is_in_the_way() {
        let name: Address = format!("@sidestep-test-listen-{}", std::process::id()).parse().expect("valid");
        let first = listen(&name, false).expect("free");
        let error = listen(&name, false).err().expect("taken").to_string();
        assert!(error.contains("another broker"), "{error}");
        drop(first);
        listen(&name, false).expect("free again");
    }

    #[test]
    fn a_stale_socket_is_replaced_a_live_one_and_a_file_are_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("broker");
        let address = Address::Path(path.clone());
        let first = listen(&address, false).expect("free");
        assert!(listen(&address, false).err().expect("taken").to_string().contains("another broker"));
        drop(first);
        assert!(!path.exists(), "removed on a clean exit");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
        assert!(path.exists(), "a socket that nobody serves");
        drop(listen(&address, true).expect("replaced"));
        std::fs::write(&path, "precious").expect("write");
        assert!(listen(&address, false).err().expect("refused").to_string().contains("not a socket"));
    }

    #[test]
    fn who_has_the_directory_of_the_path_keeps_no_broker_from_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("broker");
        std::fs::write(dir.path().join("broker.lock"), "").expect("write");
        // A pod has the directory by a read-only mount, which permits to lock what is in it.
        let locked = [dir.path().to_owned(), dir.path().join("broker.lock")].map(|file| {
            let file = rustix::fs::open(file, OFlags::RDONLY, Mode::empty()).expect("open");
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).expect("lock");
            file
        });
        let address = Address::Path(path.clone());
        let first = listen(&address, false).expect("nobody serves it");
        assert!(listen(&address, false).err().expect("taken").to_string().contains("another broker"));
        let lock = lock_path(&path);
        assert!(lock.exists() && private::is_private(lock.parent().expect("a directory"), own_uid()), "{lock:?}");
        drop((first, locked));
        assert!(!lock.exists(), "removed with the broker");
    }

    fn own_uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn errors_name_the_address() {
        assert_eq!(
            "broker".parse::<Address>().expect_err("neither").to_string(),
            "'broker' is not an address: write @name or an absolute path"
        );
        let nowhere = Address::Path("/nonexistent/broker".into());
        let error = listen(&nowhere, false).err().expect("no such directory");
        let expected = "cannot bind /nonexistent/broker: No such file or directory (os error 2)";
        assert_eq!(chain(&error).to_string(), expected);
    }
}
