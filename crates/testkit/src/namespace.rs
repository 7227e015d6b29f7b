//! Network namespaces.

use crate::{must, unused_name};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A named network namespace with its loopback up. Goes away when dropped and no socket of it is left.
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

    /// Of a name that no other has.
    pub fn fresh() -> Namespace {
        Namespace::new(&unused_name())
    }

    /// As ip-netns(8) calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that keeps it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// An ip(8) command in it.
    pub fn ip(&self, words: &str) {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(words.split_whitespace());
        must("ip", &all);
    }

    /// Runs `work` on a thread in it: sockets made there stay in it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
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

/// Moves the calling thread into the namespace of this file, for good.
pub fn enter(path: &Path) {
    let file = File::open(path).expect("the namespace's file");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns (needs root)");
}

/// Moves the calling thread into a new one, for good. It has no name, and goes with the last thread and socket in it.
pub fn enter_new() {
    // Its name goes at once.
    Namespace::fresh().enter();
}

/// Of the calling thread's namespace, if nobody has done it when it was made.
pub fn raise_loopback() {
    must("ip", &["link", "set", "lo", "up"]);
}
