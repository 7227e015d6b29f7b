//! Tests that run themselves again inside namespaces of their own.

use crate::namespace::raise_loopback;
use std::process::{Command, Stdio};

/// Runs only this test of this test program, as root of a new user namespace.
pub fn in_user_namespace(test: &str) -> Command {
    unshared(&["--map-root-user"], test)
}

/// The same, also in a new network namespace of that user namespace. The test must call [`arrive`] first.
pub fn in_network_of_user_namespace(test: &str) -> Command {
    unshared(&["--map-root-user", "--net"], test)
}

/// The same in a new network namespace, in the present user namespace. Needs root. The test must call [`arrive`] first.
pub fn in_network_namespace(test: &str) -> Command {
    assert!(rustix::process::geteuid().is_root(), "this test needs root");
    unshared(&["--net"], test)
}

/// Call first in a new network namespace.
pub fn arrive() {
    raise_loopback();
}

fn unshared(what: &[&str], test: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(what).arg("--").arg(std::env::current_exe().expect("own path"));
    // Failures inside are reported on stderr; a second summary of tests on stdout would only confuse.
    command.args(["--exact", test, "--nocapture"]).stdout(Stdio::null());
    command
}
