//! Attackers are another user than their victims: so the broker has them in a trust domain of their own.

/// The attackers' user. It need not exist.
pub const ATTACKER: u32 = 4001;

/// This thread is the attackers' user for as long as this lives.
pub struct Disguise {
    before: u32,
}

impl Disguise {
    pub fn attacker() -> Disguise {
        Disguise::of(ATTACKER)
    }

    /// For what an attacker has prepared while it was more than it is now.
    pub fn root() -> Disguise {
        Disguise::of(0)
    }

    fn of(uid: u32) -> Disguise {
        let before = rustix::process::geteuid().as_raw();
        become_user(uid);
        Disguise { before }
    }
}

impl Drop for Disguise {
    fn drop(&mut self) {
        become_user(self.before);
    }
}

/// Of this thread alone; root stays in reserve.
fn become_user(uid: u32) {
    // SAFETY: no memory involved. libc's own function would change all threads.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, 0) };
    assert_eq!(done, 0, "attackers are another user: this test needs root");
}
