//! Network namespaces.

use crate::{must, unused_name};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A named network namespace with its loopback up. Its name is removed on drop; it ends with its last socket.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a network namespace of this name, whose loopback interface is up.
    pub fn new(name: &str) -> Namespace {
        must("ip", &["netns", "add", name]);
        let namespace = Namespace { name: name.into() };
        namespace.ip("link set lo up");
        namespace
    }

    /// Creates a namespace with an unused name.
    pub fn fresh() -> Namespace {
        Namespace::new(&unused_name())
    }

    /// The name for ip-netns(8).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file of the namespace.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// Runs an ip(8) command in it.
    pub fn ip(&self, words: &str) {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(words.split_whitespace());
        must("ip", &all);
    }

    /// Runs `work` on a thread in it. Sockets that the thread creates stay in it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        run_in(&self.path(), work)
    }

    /// Moves the calling thread into it, for good.
    pub fn enter(&self) {
        enter(&self.path());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

/// Runs `work` on a thread in the namespace of this file. Sockets that the thread creates stay in it.
pub fn run_in<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            enter(path);
            work()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves the calling thread into the namespace of this file, for good.
pub fn enter(path: &Path) {
    let file = File::open(path).expect("the namespace's file");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns (needs root)");
}

/// Moves the calling thread into a new namespace, for good. The namespace has no name, and ends with its last thread and socket.
pub fn enter_new() {
    // Dropping the Namespace only removes the name.
    Namespace::fresh().enter();
}

/// Brings up the loopback of the calling thread's namespace.
pub fn raise_loopback() {
    must("ip", &["link", "set", "lo", "up"]);
}
