//! Tests that run themselves again inside namespaces of their own.

use crate::namespace::raise_loopback;
use std::env::current_exe;
use std::process::{Command, Stdio};

/// The arguments with which this test program runs one test alone. `test`: its path with that of its module,
/// `concat!(module_path!(), "::name")`.
///
/// # Panics
///
/// If there is no such test: a run of no test would be a success.
pub fn alone(test: &str) -> [&str; 3] {
    // The program's own name comes first.
    let path = test.split_once("::").map_or(test, |(_, path)| path);
    let listed =
        Command::new(current_exe().expect("own path")).args(["--list", "--exact", path]).output().expect("own program");
    assert!(String::from_utf8_lossy(&listed.stdout).contains(&format!("{path}: test")), "there is no test {path}");
    ["--exact", path, "--nocapture"]
}

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
    command.args(what).arg("--").arg(current_exe().expect("own path"));
    // Failures inside are reported on stderr; a second summary of tests on stdout would only confuse.
    command.args(alone(test)).stdout(Stdio::null());
    command
}
