//! Tests that run themselves once more inside of namespaces of their own.

use crate::namespace::raise_loopback;
use std::process::{Command, Stdio};

/// This test program, told to run only this test, as root of a user namespace of its own.
pub fn in_user_namespace(test: &str) -> Command {
    unshared(&["--map-root-user"], test)
}

/// The same, in a network namespace that belongs to that user namespace. The test calls [`arrive`] there.
pub fn in_network_of_user_namespace(test: &str) -> Command {
    unshared(&["--map-root-user", "--net"], test)
}

/// In a network namespace that belongs to the same user namespace. Needs root. The test calls [`arrive`] there.
pub fn in_network_namespace(test: &str) -> Command {
    assert!(rustix::process::geteuid().is_root(), "this test needs root");
    unshared(&["--net"], test)
}

/// The first thing that a test does inside of a new network namespace.
pub fn arrive() {
    raise_loopback();
}

fn unshared(what: &[&str], test: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(what).arg("--").arg(std::env::current_exe().expect("own path"));
    // What fails inside is said on stderr; a second count of tests on stdout would only confuse.
    command.args(["--exact", test, "--nocapture"]).stdout(Stdio::null());
    command
}
