//! fork, exec, spawn, exit, and other calls that change the process as a whole.

use super::conn;
use crate::handlers::as_ignored;
use crate::{
    arena, drain, errno, exec, fdtable, fork as forking, next, pid_namespace, settings, spawn_actions, thread, user,
};
use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use libc::pid_t;
use sidestep_abi::Reason;
use sidestep_sys::fd;

type Strings = *const *const c_char;

/// libc runs our handlers (fork.rs) inside fork(3), as it does for daemon(3) and forkpty(3).
pub unsafe fn fork() -> pid_t {
    if !forking::is_registered() {
        // SAFETY: the program's own call.
        return followed(false, || unsafe { next::fork() }.into()) as pid_t;
    }
    // SAFETY: the program's own call.
    let pid = unsafe { next::fork() };
    match pid {
        0 => {}
        1.. => forking::done(pid as u32),
        _ => forking::failed(),
    }
    pid
}

/// _Fork(3) runs no handlers. In a libc without _Fork(3) only fork(3) makes a child in which libc works.
pub unsafe fn fork_plain() -> pid_t {
    if !crate::calls::symbols::has_plain_fork() {
        // SAFETY: the program's own call.
        return unsafe { fork() };
    }
    // SAFETY: the program's own call.
    followed(false, || unsafe { next::_Fork() }.into()) as pid_t
}

/// Makes a child that returns here too, with a copy of the memory. `is_apart`: in a PID namespace of its own.
fn followed(is_apart: bool, native: impl FnOnce() -> c_long) -> c_long {
    forking::prepare_child(is_apart);
    let pid = native();
    match pid {
        0 => errno::keep(forking::in_child),
        -1 => forking::failed(),
        _ => forking::done(pid as u32),
    }
    pid
}

/// fork(2) through syscall().
pub fn raw_fork(native: impl FnOnce() -> c_long) -> c_long {
    followed(false, native)
}

/// clone(2) through syscall(), with these flags. `stack`: 0 if the child continues on the present stack.
pub fn raw_clone(flags: u64, stack: usize, native: impl FnOnce() -> c_long) -> c_long {
    let has = |flag: c_int| flags & flag as u64 != 0;
    if has(libc::CLONE_THREAD) {
        return native();
    }
    if has(libc::CLONE_VM) {
        return on_our_memory(has(libc::CLONE_VFORK), native);
    }
    if stack != 0 || has(libc::CLONE_FILES) {
        // A child on another stack does not return here. A child with CLONE_FILES closes our descriptors, too. In either case
        // the child would act as this process, so only the kernel can serve both.
        exec::drain_present_to_kernel(Reason::Shared);
        return native();
    }
    followed(has(libc::CLONE_NEWPID), native)
}

/// With CLONE_VFORK (`waits`) the child runs on this thread's memory until it ends: calls meanwhile may be the child's.
fn on_our_memory(waits: bool, native: impl FnOnce() -> c_long) -> c_long {
    if !waits {
        return native();
    }
    thread::set_vfork(true);
    let pid = native();
    if pid != 0 {
        thread::set_vfork(false); // the child is gone
    }
    pid
}

/// clone3(2) through syscall().
pub fn raw_clone3(args: *const CloneArgs, size: usize, native: impl FnOnce() -> c_long) -> c_long {
    // The kernel refuses a shorter struct, and one that cannot be read.
    match user::read(args) {
        Ok(a) if size >= size_of::<CloneArgs>() => raw_clone(a.flags, a.stack as usize, native),
        _ => native(),
    }
}

/// The beginning of struct clone_args (linux/sched.h), at the least size that the kernel accepts.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CloneArgs {
    flags: u64,
    _ids: [u64; 4],
    stack: u64,
    _rest: [u64; 2],
}

// SAFETY: integers.
unsafe impl user::Plain for CloneArgs {}

pub unsafe fn exit(status: c_int) -> ! {
    leave();
    // SAFETY: the program's own call; it does not return.
    unsafe { next::_exit(status) }
}

/// The process is about to end, unless this is a vfork child, which ends on its parent's memory.
pub fn leave() {
    if !thread::in_vfork() {
        exec::leave(true);
    }
}

/// exit(2) through syscall() ends one thread, and the process if that thread is the last. A program that has confined itself may not even
/// be allowed to ask for the number of threads.
pub fn leave_thread() {
    if is_last_thread(settings::active()) {
        leave();
    }
}

fn is_last_thread(may_ask: bool) -> bool {
    may_ask && thread::is_last()
}

/// Makes the program's exec call, which returns only if it fails.
pub fn execute<T>(native: impl FnOnce() -> T) -> T {
    exec::prepare();
    let result = as_ignored(native);
    exec::failed();
    result
}

pub unsafe fn execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the program's own call.
    execute(|| unsafe { next::execv(path, argv) })
}

pub unsafe fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own call.
    execute(|| unsafe { next::execve(path, argv, envp) })
}

pub unsafe fn execvp(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the program's own call.
    execute(|| unsafe { next::execvp(file, argv) })
}

pub unsafe fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own call.
    execute(|| unsafe { next::execvpe(file, argv, envp) })
}

pub unsafe fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own call.
    execute(|| unsafe { next::fexecve(fd, argv, envp) })
}

pub unsafe fn execveat(dir: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    execute(|| unsafe { next::execveat(dir, path, argv, envp, flags) })
}

/// For the C shim's execl.
#[unsafe(no_mangle)]
unsafe extern "C" fn ss_execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the same contract.
    unsafe { execv(path, argv) }
}

/// For the C shim's execlp.
#[unsafe(no_mangle)]
unsafe extern "C" fn ss_execvp(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the same contract.
    unsafe { execvp(file, argv) }
}

/// For the C shim's execle.
#[unsafe(no_mangle)]
unsafe extern "C" fn ss_execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the same contract.
    unsafe { execve(path, argv, envp) }
}

/// The spawned program will have every connection that is not close-on-exec, and those that the program's list of actions copies.
fn before_spawn(actions: *const c_void) {
    exec::drain_inherited_to_kernel();
    if fdtable::follows_connections() {
        spawn_actions::for_each_copied(actions, drain_copied);
    }
}

fn drain_copied(fd: c_int) {
    if let Some(index) = conn(fd) {
        errno::keep(|| drain::to_kernel(arena::conn(index), fd, Reason::Exec));
    }
}

/// The functions that start a program. `place`: where the new process's number or descriptor is written.
macro_rules! spawns {
    ($($name:ident($place:ty);)*) => {$(
        pub unsafe fn $name(
            place: *mut $place,
            program: *const c_char,
            actions: *const c_void,
            attr: *const c_void,
            argv: Strings,
            envp: Strings,
        ) -> c_int {
            before_spawn(actions);
            // SAFETY: the program's own call.
            as_ignored(|| unsafe { next::$name(place, program, actions, attr, argv, envp) })
        }
    )*};
}

spawns! {
    posix_spawn(pid_t);
    posix_spawnp(pid_t);
    pidfd_spawn(c_int);
    pidfd_spawnp(c_int);
}

pub unsafe fn system(command: *const c_char) -> c_int {
    exec::drain_inherited_to_kernel();
    // SAFETY: the program's own call.
    as_ignored(|| unsafe { next::system(command) })
}

pub unsafe fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    exec::drain_inherited_to_kernel();
    // SAFETY: the program's own call.
    as_ignored(|| unsafe { next::popen(command, mode) })
}

/// The spawned program will have the connection under another descriptor, even if ours is close-on-exec.
pub unsafe fn adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int {
    drain_copied(fd);
    // SAFETY: the program's own call.
    unsafe { next::posix_spawn_file_actions_adddup2(actions, fd, new) }
}

pub unsafe fn setrlimit(resource: c_int, new: *const libc::rlimit) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { next::setrlimit(resource, new) };
    limited(resource, !new.is_null());
    result
}

pub unsafe fn prlimit(pid: pid_t, resource: c_int, new: *const libc::rlimit, old: *mut libc::rlimit) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { next::prlimit(pid, resource, new, old) };
    limited(resource, !new.is_null());
    result
}

/// The program has read a limit, or has `changed` it. If few descriptors are permitted from now on, the program needs all of
/// them, so its connections go to the kernel.
pub fn limited(resource: c_int, changed: bool) {
    let concerns_us = changed && resource == libc::RLIMIT_NOFILE as c_int && fdtable::follows_any();
    if concerns_us && !thread::in_vfork() && !fd::may_be_ours() {
        exec::drain_present_to_kernel(Reason::FdLimit);
    }
}

pub unsafe fn unshare(flags: c_int) -> c_int {
    if settings::active() && parts_descriptors(flags) {
        exec::drain_all_to_kernel(Reason::Shared);
    }
    // SAFETY: the program's own call.
    let result = unsafe { next::unshare(flags) };
    if result == 0 && flags & libc::CLONE_NEWPID != 0 {
        pid_namespace::moved();
    }
    result
}

/// Whether unshare(2) with these flags gives the thread a descriptor table of its own, beside that of other threads. Then a number stands
/// for two files, and the library would take one thread's file for the other's connection.
fn parts_descriptors(flags: c_int) -> bool {
    flags & libc::CLONE_FILES != 0 && !is_last_thread(true)
}

/// The descriptor says into which namespaces, of which one may be for processes.
pub unsafe fn setns(fd: c_int, kind: c_int) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { next::setns(fd, kind) };
    if result == 0 {
        pid_namespace::moved();
    }
    result
}

/// The operations of seccomp(2) that restrict the caller.
pub const CONFINES: [u32; 2] = [libc::SECCOMP_SET_MODE_STRICT, libc::SECCOMP_SET_MODE_FILTER];

pub unsafe fn prctl(option: c_int, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        exec::confine();
    }
    // SAFETY: the program's own call.
    unsafe { next::prctl(option, b, c, d, e) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use libc::{sock_filter, sock_fprog};

    static TRAPPED: AtomicBool = AtomicBool::new(false);

    extern "C" fn trapped(_signal: c_int) {
        TRAPPED.store(true, Relaxed);
    }

    /// From now on openat(2) raises SIGSYS in this thread.
    fn forbid_files() {
        let step = |code: u32, jt, k| sock_filter { code: code as u16, jt, jf: 0, k };
        // The system call's number is the first word of the filter's input.
        let mut program = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_openat as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_TRAP),
        ];
        let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let confine = |option: c_int, a: usize, b: usize| {
            // SAFETY: a filter that is alive during the call. Past the hooks, which would silence the library in all tests.
            unsafe { sidestep_sys::call(libc::SYS_prctl, [option as usize, a, b, 0, 0, 0]) }
        };
        // SAFETY: a handler that stores a flag.
        assert_ne!(unsafe { libc::signal(libc::SIGSYS, trapped as *const () as usize) }, libc::SIG_ERR);
        assert_eq!(confine(libc::PR_SET_NO_NEW_PRIVS, 1, 0), Ok(0));
        let mode = libc::SECCOMP_MODE_FILTER as usize;
        assert_eq!(confine(libc::PR_SET_SECCOMP, mode, &raw const filter as usize), Ok(0));
    }

    #[test]
    fn a_thread_beside_others_parts_its_descriptors_from_theirs() {
        let answers = std::thread::spawn(|| [libc::CLONE_FILES, libc::CLONE_FS].map(parts_descriptors));
        assert_eq!(answers.join().expect("no panic"), [true, false]);
    }

    #[test]
    fn who_may_make_no_call_does_not_ask_for_the_number_of_threads() {
        let ended = std::thread::spawn(|| {
            forbid_files();
            (is_last_thread(false), TRAPPED.load(Relaxed))
        });
        assert_eq!(ended.join().expect("no panic"), (false, false), "a filter that kills would end the program");
    }
}
