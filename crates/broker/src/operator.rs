//! The operator's socket, for status, detach and attach. It is not the members' socket. It is in a directory that only the
//! broker's own user and root can enter. So a pod that is given the members' socket, by its file, its directory, or a shared
//! network namespace, does not get the operator's. Its path follows from the members' address and the broker's user, so that it
//! need not be configured.

use crate::listen::{Address, Listener};
pub use crate::private::{directories, is_private};
use crate::private::{make, name_of, real};
use crate::raw::sock;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the socket of the broker at this address: a readable part, and a hash.
pub fn name(address: &Address) -> String {
    let text = match address {
        // An abstract name is visible in one network namespace. In another one, another broker may have it.
        Address::Abstract(name) => format!("@{name} {}", own_namespace()),
        Address::Path(path) => real(path).display().to_string(),
    };
    name_of(&address.to_string(), &text)
}

fn own_namespace() -> u64 {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    socket.ok().and_then(|socket| sock::netns_cookie(socket.as_fd()).ok()).unwrap_or(0)
}

/// No directory is suitable for the operator's socket: the directories that were tried, each with its error.
#[derive(Debug, thiserror::Error)]
#[error("no socket for `sidestep status` and `sidestep detach` ({})", listed(.0))]
pub struct NoPlace(Vec<(PathBuf, io::Error)>);

fn listed(tried: &[(PathBuf, io::Error)]) -> String {
    tried.iter().map(|(path, error)| format!("{}: {error}", path.display())).collect::<Vec<_>>().join("; ")
}

/// Listens for operators of the broker at `address`. That address must be ours already, so that nobody else uses the same name.
pub fn listen(address: &Address) -> Result<Listener, NoPlace> {
    let uid = rustix::process::geteuid().as_raw();
    let mut tried = Vec::new();
    for directory in directories(uid) {
        match listen_in(&directory, uid, &name(address)) {
            Ok(listener) => return Ok(listener),
            Err(e) => tried.push((directory, e.into())),
        }
    }
    Err(NoPlace(tried))
}

fn listen_in(directory: &Path, uid: u32, name: &str) -> Result<Listener, Errno> {
    make(directory, uid)?;
    remove_stale(directory);
    // The socket gets its final name only when it listens. So a socket that does not listen under such a name is stale.
    let (path, new) = (directory.join(name), directory.join(format!(".{}-{name}", std::process::id())));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&new)?)?;
    let listening = rustix::net::sockopt::set_socket_passcred(&socket, true)
        .and_then(|()| rustix::net::listen(&socket, 64))
        .and_then(|()| rustix::fs::rename(&new, &path));
    match listening {
        Ok(()) => Ok(Listener::at_path(socket, path)),
        Err(e) => {
            let _ = std::fs::remove_file(&new); // the temporary name is known to nobody else
            Err(e)
        }
    }
}

/// Removes the sockets of brokers that were killed.
fn remove_stale(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_new = entry.file_name().as_bytes().starts_with(b".");
        if !is_new && connect(&path).err() == Some(Errno::CONNREFUSED) {
            let _ = std::fs::remove_file(path); // another broker may have removed it already
        }
    }
}

fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    Address::Path(path.to_owned()).connect()
}

/// Connects to the operator's socket of the broker of user `uid` at `address`. None: there is none, or we may not use it.
pub fn find(address: &Address, uid: u32) -> Option<OwnedFd> {
    let name = name(address);
    let there = directories(uid).into_iter().filter(|directory| is_private(directory, uid));
    let mut sockets = there.filter_map(|directory| connect(&directory.join(&name)).ok());
    sockets.find(|socket| crate::users::peer_of(socket).is_ok_and(|peer| peer.uid == uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn named(address: &str) -> String {
        name(&address.parse().expect("an address"))
    }

    #[test]
    fn names_can_be_read_and_differ() {
        assert!(named("@sidestep-1000").starts_with("sidestep-1000-"), "{}", named("@sidestep-1000"));
        assert!(named("/run/sidestep/broker").starts_with("run_sidestep_broker-"));
        let many =
            ["@a/b", "@a_b", "/a/b", "/a_b", "@b", &format!("/{}", "x".repeat(90)), &format!("/{}", "x".repeat(91))];
        let names: std::collections::BTreeSet<_> = many.iter().map(|address| named(address)).collect();
        assert_eq!(names.len(), many.len(), "{names:?}");
        assert!(
            names.iter().all(|name| name.len() <= crate::private::READABLE + 17 && !name.contains('/')),
            "{names:?}"
        );
    }

    #[test]
    fn a_directory_by_another_name_is_the_same() {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::create_dir(dir.path().join("real")).expect("mkdir");
        std::os::unix::fs::symlink("real", dir.path().join("alias")).expect("symlink");
        let name = |part: &str| name(&Address::Path(dir.path().join(part)));
        let hash = |name: String| name.rsplit('-').next().map(str::to_owned);
        assert_eq!(hash(name("real/broker")), hash(name("alias/broker")));
        assert_ne!(hash(name("real/broker")), hash(name("real/other")));
    }

    #[test]
    fn only_a_private_directory_is_used() {
        let uid = rustix::process::geteuid().as_raw();
        let dir = tempfile::tempdir().expect("temporary directory");
        let (open, link) = (dir.path().join("open"), dir.path().join("link"));
        std::fs::create_dir(&open).expect("mkdir");
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o770)).expect("chmod");
        assert_eq!(listen_in(&open, uid, "x").err(), Some(Errno::PERM), "others may have written to it");
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).expect("chmod");
        assert!(!is_private(&open, uid), "others may enter it");
        drop(listen_in(&open, uid, "x").expect("it is made private"));
        assert!(is_private(&open, uid) && !is_private(&open, uid + 1), "ours, and nobody else's");
        std::os::unix::fs::symlink("open", &link).expect("symlink");
        let led_elsewhere = [Some(Errno::LOOP), Some(Errno::NOTDIR)];
        assert!(led_elsewhere.contains(&listen_in(&link, uid, "x").err()));
        let listener = listen_in(&open, uid, "x").expect("private");
        connect(&open.join("x")).expect("it listens");
        drop(listener);
        assert!(!open.join("x").exists(), "removed at the end");
    }

    /// Another broker of this user may be stopped, with a full backlog.
    #[test]
    fn one_that_does_not_accept_is_neither_waited_for_nor_removed() {
        let uid = rustix::process::geteuid().as_raw();
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).expect("chmod");
        let stopped = listen_in(dir.path(), uid, "stopped").expect("private");
        let asked: Vec<_> = std::iter::from_fn(|| connect(&dir.path().join("stopped")).ok()).take(10_000).collect();
        assert!(asked.len() < 10_000, "its backlog has an end");
        drop(listen_in(dir.path(), uid, "another").expect("private"));
        assert!(dir.path().join("stopped").exists());
        drop(stopped);
    }

    #[test]
    fn what_killed_brokers_left_is_removed_and_what_listens_is_not() {
        let uid = rustix::process::geteuid().as_raw();
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).expect("chmod");
        drop(std::os::unix::net::UnixListener::bind(dir.path().join("dead")).expect("bind"));
        let _one = listen_in(dir.path(), uid, "one").expect("private");
        let _two = listen_in(dir.path(), uid, "two").expect("private");
        let there = |name: &str| dir.path().join(name).exists();
        assert_eq!((there("dead"), there("one"), there("two")), (false, true, true));
    }
}
