//! Members of other users, who have a trust domain of their own. Needs root.

/// Users that need not exist.
pub const MALLORY: u32 = 4001;
pub const CAROL: u32 = 4002;
pub const DAVE: u32 = 4003;

/// Does something as another user: what is connected or sent meanwhile comes from that user.
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

/// Of this thread alone, which libc's own function would not do; root stays in reserve.
fn become_user(uid: u32) {
    // SAFETY: no memory involved.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, 0) };
    assert_eq!(done, 0, "another user: this test needs root");
}
