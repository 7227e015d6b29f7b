//! The cgroup of a lab: sockets that this process makes while it is in it belong to it.

use std::fs;
use std::path::{Path, PathBuf};

/// Where cgroup v2 is mounted: alone, or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A cgroup of this test, removed with all below it at its end.
pub struct Cgroup {
    root: PathBuf,
    path: PathBuf,
}

impl Cgroup {
    /// Makes one and moves this process into it.
    pub(crate) fn enter(name: &str) -> Cgroup {
        let found = MOUNTS.iter().map(Path::new).find(|path| path.join("cgroup.controllers").exists());
        let root = found.expect("cgroup v2 is mounted").to_path_buf();
        let path = root.join(name);
        fs::create_dir(&path).expect("a cgroup (needs root)");
        let cgroup = Cgroup { root, path };
        cgroup.move_to(&cgroup.path);
        cgroup
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` while this process is outside, where sockets and children that it makes meanwhile stay.
    pub fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Back<'a>(&'a Cgroup);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.move_to(&self.0.path);
            }
        }
        self.move_to(&self.root);
        let _back = Back(self);
        work()
    }

    fn move_to(&self, cgroup: &Path) {
        fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string()).expect("move into the cgroup");
    }

    pub(crate) fn leave(&self) {
        self.move_to(&self.root);
        // Children that are just ending keep it for a moment; what is left then is an empty directory.
        let _ = fs::remove_dir(&self.path);
    }
}
