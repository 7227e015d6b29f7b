//! Members of other users, each user with its own trust domain. Needs root.

/// Users that need not exist.
pub const MALLORY: u32 = 4001;
pub const CAROL: u32 = 4002;
pub const DAVE: u32 = 4003;

/// Runs `work` as another user: connections and records made meanwhile come from that user.
pub fn as_user<T>(uid: u32, work: impl FnOnce() -> T) -> T {
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            become_user(self.0);
        }
    }
    let _back = Back(rustix::process::geteuid().as_raw());
    become_user(uid);
    work()
}

/// Changes this thread only, unlike libc's own function. Root stays the saved uid.
fn become_user(uid: u32) {
    // SAFETY: no memory involved.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, 0) };
    assert_eq!(done, 0, "another user: this test needs root");
}
