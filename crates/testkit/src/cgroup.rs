//! Cgroups v2. A socket belongs to the cgroup in which its creator was at that time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where cgroup v2 is mounted: alone, or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Processes that have just ended stay members for a moment.
const ENDING: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

/// Removed on drop, if it is empty by then.
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Creates a cgroup at the top of the hierarchy.
    pub fn new(name: &str) -> Cgroup {
        Cgroup::make(mount().join(name))
    }

    /// Creates a cgroup inside this one.
    pub fn child(&self, name: &str) -> Cgroup {
        Cgroup::make(self.path.join(name))
    }

    fn make(path: PathBuf) -> Cgroup {
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error} (needs root)", path.display()));
        Cgroup { path }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves this process into it.
    pub fn enter(&self) {
        self.admit(std::process::id());
    }

    /// Moves a process into it.
    pub fn admit(&self, pid: u32) {
        admit(&self.path, pid);
    }

    /// A program that is a member from its first instruction on; so are its children.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-ec", "echo $$ >\"$0\"/cgroup.procs; exec \"$@\""]).arg(&self.path).arg(program);
        command
    }

    /// Runs `work` while this process is outside of the cgroup. Sockets and children created meanwhile stay outside.
    pub fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Back<'a>(&'a Cgroup);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.enter();
            }
        }
        self.leave();
        let _back = Back(self);
        work()
    }

    /// Moves this process to the parent cgroup.
    pub(crate) fn leave(&self) {
        admit(self.path.parent().expect("it is below a mount"), std::process::id());
    }

    /// Kills all members, also those of cgroups inside.
    pub fn kill(&self) {
        fs::write(self.path.join("cgroup.kill"), "1").expect("end the members of a cgroup");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..ENDING.as_millis() / POLL.as_millis() {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            std::thread::sleep(POLL); // between two looks
        }
    }
}

fn mount() -> &'static Path {
    let found = MOUNTS.iter().map(Path::new).find(|path| path.join("cgroup.controllers").exists());
    found.expect("cgroup v2 is mounted")
}

fn admit(cgroup: &Path, pid: u32) {
    fs::write(cgroup.join("cgroup.procs"), pid.to_string()).expect("move into the cgroup");
}

/// Cgroups, each inside the one before, as the kubelet and systemd make them. On drop this process leaves them, and they are
/// removed.
pub struct Nested(Vec<Cgroup>);

impl Nested {
    /// Creates the cgroups of this path that do not exist.
    pub fn new(path: &str) -> Nested {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let paths = ends.map(|end| mount().join(&path[..end]));
        Nested(paths.filter_map(|path| (!path.exists()).then(|| Cgroup::make(path))).collect())
    }

    /// Moves this process into the innermost one.
    pub fn enter(&self) {
        self.0.last().expect("one is new").enter();
    }

    /// Moves this process to the top of the hierarchy.
    pub fn leave_all() {
        admit(mount(), std::process::id());
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        Nested::leave_all();
        while self.0.pop().is_some() {}
    }
}
