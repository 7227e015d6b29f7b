//! Closes descriptors of other processes that turned out not to be the wanted ones. close() may block on the other process: the
//! file may be of its own FUSE file system, or a stream may linger. So another thread closes it, and while a close of one owner
//! blocks, no descriptor of that owner is taken.

use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The owner of descriptors: a process's control groups, which the process cannot choose.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(String);

impl Owner {
    /// None: the process has ended.
    pub fn of(process: u32) -> Option<Owner> {
        std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok().map(Owner)
    }
}

/// At most so many owners have a close in progress.
const MOST: usize = 64;
static CLOSING: Mutex<BTreeSet<Owner>> = Mutex::new(BTreeSet::new());

fn closing() -> MutexGuard<'static, BTreeSet<Owner>> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a descriptor of this owner may be taken: none of its descriptors is still being closed.
pub fn may_take_of(owner: &Owner) -> bool {
    let closing = closing();
    !closing.contains(owner) && closing.len() < MOST
}

pub fn close_elsewhere(owner: Owner, descriptor: OwnedFd) {
    closing().insert(owner.clone());
    std::thread::spawn(move || {
        drop(descriptor);
        closing().remove(&owner);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_linger;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// A stream whose close() lingers, and the end that it waits for.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        set_socket_linger(&stream, Some(Duration::from_secs(60))).unwrap();
        stream.set_nonblocking(true).unwrap();
        loop {
            match stream.write(&[0; 1 << 16]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        stream.set_nonblocking(false).unwrap();
        (stream.into(), peer)
    }

    #[test]
    fn who_makes_a_close_wait_is_not_touched_meanwhile_and_others_are() {
        let owners = ["one", "other"].map(|name| Owner(name.into()));
        assert!(owners.iter().all(may_take_of));
        let (descriptor, peer) = lingering();
        close_elsewhere(owners[0].clone(), descriptor);
        assert_eq!(owners.each_ref().map(may_take_of), [false, true]);
        drop(peer);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !may_take_of(&owners[0]) {
            assert!(Instant::now() < deadline, "the close does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_has_an_owner_as_long_as_it_lives() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(Owner::of(child.id()), Owner::of(std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Owner::of(child.id()), None);
    }
}
