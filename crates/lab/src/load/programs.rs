//! Finds programs, and says how to install missing ones.

use super::LoadError;
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};

/// Directories of servers, which an ordinary user's PATH lacks.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where `tools/install-deps lab` and `make test-kube` put programs: in the target directory, above the target/release of the lab
/// and of its tests.
const BUILT: [&str; 2] = ["lab-tools/bin", "kube/bin"];

/// Finds a program by name: beside the lab, among those that were built for it, in PATH. A path is returned as it is.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    places().map(|place| place.join(name)).find(|path| is_program(path))
}

/// As `find_program`, but an error says how to install the program.
pub fn require_program(name: &str) -> Result<PathBuf, LoadError> {
    find_program(name).ok_or_else(|| LoadError::NotInstalled { program: name.to_owned(), install: install_hint(name) })
}

fn places() -> impl Iterator<Item = PathBuf> {
    let me = std::env::current_exe().unwrap_or_default();
    let beside: Vec<PathBuf> = me.ancestors().skip(1).take(1).map(Path::to_owned).collect();
    let built: Vec<PathBuf> =
        me.ancestors().skip(2).take(2).flat_map(|folder| BUILT.map(|built| folder.join(built))).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    beside.into_iter().chain(built).chain(path).chain(SYSTEM.map(PathBuf::from))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// The command line that installs a program.
fn install_hint(name: &str) -> String {
    match name {
        "oha" | "fortio" => "tools/install-deps lab".to_owned(),
        "k6" => "tools/install-deps lab-k6".to_owned(),
        "envoy" => "tools/install-deps bench".to_owned(),
        "kube-proxy" => "make test-kube".to_owned(),
        _ => format!("apt-get install {}", debian_package(name)),
    }
}

fn debian_package(program: &str) -> &str {
    match program {
        "nginx" => "nginx-light",
        "h2load" => "nghttp2-client",
        "redis-benchmark" | "redis-cli" => "redis-tools",
        "iptables-restore" | "iptables-save" => "iptables",
        "ip" | "tc" | "ss" => "iproute2",
        "nsenter" | "unshare" | "setpriv" | "taskset" => "util-linux",
        "sysctl" => "procps",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_told() {
        assert!(find_program("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find_program("/bin/sh"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find_program("/etc/passwd"), None);
        let error = require_program("h2load-of-nobody").expect_err("nobody has it");
        assert_eq!(error.to_string(), "h2load-of-nobody is not installed; run: apt-get install h2load-of-nobody");
        assert_eq!(install_hint("h2load"), "apt-get install nghttp2-client");
    }
}
