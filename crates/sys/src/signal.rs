//! Signals: their actions in the kernel, masks, and sending one again.

use crate::{Result, call, process};

/// struct kernel_sigaction, as rt_sigaction(2) reads and writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Action {
    /// A function, SIG_DFL or SIG_IGN.
    pub handler: usize,
    /// SA_* of the kernel.
    pub flags: u64,
    /// Where a handler returns to, if [`SA_RESTORER`] is set.
    pub restorer: usize,
    /// Bit n - 1 is signal n.
    pub mask: u64,
}

/// Flags that the kernel keeps (uapi/asm-generic/signal-defs.h, uapi/asm/signal.h): it drops all others.
pub const KNOWN_FLAGS: u64 = (libc::SA_NOCLDSTOP
    | libc::SA_NOCLDWAIT
    | libc::SA_SIGINFO
    | libc::SA_ONSTACK
    | libc::SA_RESTART
    | libc::SA_NODEFER
    | libc::SA_RESETHAND) as u32 as u64
    | SA_EXPOSE_TAGBITS
    | SA_RESTORER;
const SA_EXPOSE_TAGBITS: u64 = 0x800;
/// The action has a restorer.
pub const SA_RESTORER: u64 = 0x0400_0000;

/// Whether the kernel itself raised a signal with this si_code: it is greater than SI_USER, which kill(2) sets.
pub fn is_of_the_kernel(code: i32) -> bool {
    code > libc::SI_USER
}

/// The action of this signal.
pub fn action(signal: i32) -> Result<Action> {
    let mut action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let args = [signal as usize, 0, &raw mut action as usize, 8, 0, 0];
    // SAFETY: the kernel writes one struct of this layout.
    unsafe { call(libc::SYS_rt_sigaction, args) }.map(|_| action)
}

/// Sets the action of this signal.
///
/// # Safety
/// A handler must be a signal handler, with a restorer.
pub unsafe fn set_action(signal: i32, action: &Action) -> Result<()> {
    let args = [signal as usize, &raw const *action as usize, 0, 8, 0, 0];
    // SAFETY: the kernel reads one struct of this layout; the rest by contract.
    unsafe { call(libc::SYS_rt_sigaction, args) }.map(drop)
}

/// Sends this thread a signal that it has just received, unchanged. A blocked signal arrives when it is unblocked.
///
/// # Safety
/// `information` must be what the handler was given.
pub unsafe fn send_again(signal: i32, information: *const libc::siginfo_t) -> Result<()> {
    let args = [process::pid() as usize, process::tid() as usize, signal as usize, information as usize, 0, 0];
    // SAFETY: one siginfo, by contract.
    unsafe { call(libc::SYS_rt_tgsigqueueinfo, args) }.map(drop)
}

/// Blocks further signals in this thread; bit n - 1 is signal n. Returns the old mask.
pub fn block(signals: u64) -> u64 {
    change_mask(libc::SIG_BLOCK, signals)
}

/// Unblocks these signals: pending ones arrive before the call returns. Returns the old mask.
pub fn unblock(signals: u64) -> u64 {
    change_mask(libc::SIG_UNBLOCK, signals)
}

fn change_mask(how: i32, signals: u64) -> u64 {
    let mut old = 0u64;
    let args = [how as usize, &raw const signals as usize, &raw mut old as usize, 8, 0, 0];
    // SAFETY: two words of the size that the kernel is told.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, args) };
    old
}

/// The alternate signal stack of a thread.
#[derive(Clone, Copy, Debug)]
pub struct AlternateStack {
    start: usize,
    len: usize,
    /// Whether the thread runs on this stack now.
    pub in_use: bool,
}

impl AlternateStack {
    /// Whether the address lies in this stack.
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.len
    }
}

/// The alternate signal stack of this thread; its length is 0 if there is none.
pub fn alternate_stack() -> AlternateStack {
    // SAFETY: integers and a null pointer: all zero is a value.
    let mut stack: libc::stack_t = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one stack_t.
    let _ = unsafe { call(libc::SYS_sigaltstack, [0, &raw mut stack as usize, 0, 0, 0, 0]) };
    let in_use = stack.ss_flags & libc::SS_ONSTACK != 0;
    AlternateStack { start: stack.ss_sp as usize, len: stack.ss_size, in_use }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_what_libc_has_set() {
        extern "C" fn heard(_: i32) {}
        let handler = heard as extern "C" fn(i32) as usize;
        // SAFETY: a handler that does nothing; zero is a value of the struct.
        unsafe {
            let mut new: libc::sigaction = core::mem::zeroed();
            new.sa_sigaction = handler;
            new.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
            libc::sigaddset(&mut new.sa_mask, libc::SIGHUP);
            assert_eq!(libc::sigaction(libc::SIGUSR2, &new, core::ptr::null_mut()), 0);
        }
        let found = action(libc::SIGUSR2).expect("an action");
        let flags = (libc::SA_RESTART | libc::SA_RESETHAND) as u32 as u64 | SA_RESTORER;
        assert_eq!((found.handler, found.flags, found.mask), (handler, flags, 1));
        assert_eq!(found.flags & KNOWN_FLAGS, found.flags);
    }

    #[test]
    fn blocked_signals_are_told() {
        let usr2 = 1 << (libc::SIGUSR2 - 1);
        let before = block(usr2);
        assert_eq!(unblock(usr2), before | usr2);
        assert_eq!(block(0) & usr2, 0);
    }
}
