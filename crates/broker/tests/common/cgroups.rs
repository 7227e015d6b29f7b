//! Cgroups as the kubelet and systemd make them.

use sidestep_testkit::Cgroup;

/// Cgroups, each inside the one before. On drop this process leaves them, and they are removed.
pub struct Nested(Vec<Cgroup>);

impl Nested {
    pub fn new(path: &str) -> Nested {
        Nested(Cgroup::nested(path))
    }

    /// Moves this process into the innermost one.
    pub fn enter(&self) {
        self.0.last().expect("one is new").enter();
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        Cgroup::leave_all();
        while self.0.pop().is_some() {}
    }
}
