//! fork, exec, spawn and exit; and the libc function syscall(), by which some programs make socket calls.

use super::{conn, fds, files, msg, poll, rw, sockets};
use crate::wait::signals;
use crate::{arena, errno, exec, fork as forking, life, next};
use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use libc::pid_t;
use sidestep_abi::Reason;

type Strings = *const *const c_char;

/// Passed on as it is; we only have to know whether every handler asks for restarts.
pub unsafe fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the program's own pointer, or null.
    if let Some(n) = unsafe { new.as_ref() } {
        signals::installed(signal, n.sa_sigaction, n.sa_flags);
    }
    // SAFETY: the program's own call.
    unsafe { next::sigaction(signal, new, old) }
}

pub unsafe fn signal(signal: c_int, handler: usize) -> usize {
    signals::installed(signal, handler, libc::SA_RESTART);
    // SAFETY: the program's own call.
    unsafe { next::signal(signal, handler) }
}

pub unsafe fn sysv_signal(signal: c_int, handler: usize) -> usize {
    signals::installed(signal, handler, 0);
    // SAFETY: the program's own call.
    unsafe { next::sysv_signal(signal, handler) }
}

pub unsafe fn siginterrupt(signal: c_int, on: c_int) -> c_int {
    if on != 0 {
        signals::installed(signal, usize::MAX, 0);
    }
    // SAFETY: the program's own call.
    unsafe { next::siginterrupt(signal, on) }
}

/// libc runs our handlers (fork.rs) inside of it, as it does for daemon(3) and forkpty(3).
pub unsafe fn fork() -> pid_t {
    // SAFETY: the program's own call.
    let pid = unsafe { next::fork() };
    if pid < 0 {
        forking::failed();
    }
    pid
}

/// _Fork(3) runs no handlers.
pub unsafe fn fork_plain() -> pid_t {
    forking::prepare();
    // SAFETY: the program's own call.
    let pid = unsafe { next::_Fork() };
    match pid {
        0 => errno::keep(forking::in_child),
        -1 => forking::failed(),
        _ => {}
    }
    pid
}

pub unsafe fn exit(status: c_int) -> ! {
    if !crate::thread::in_vfork() {
        exec::leave();
    }
    // SAFETY: the program's own call; it does not return.
    unsafe { next::_exit(status) }
}

pub unsafe fn execv(path: *const c_char, argv: Strings) -> c_int {
    exec::prepare();
    // SAFETY: the program's own call.
    unsafe { next::execv(path, argv) }
}

pub unsafe fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    exec::prepare();
    // SAFETY: the program's own call.
    unsafe { next::execve(path, argv, envp) }
}

pub unsafe fn execvp(file: *const c_char, argv: Strings) -> c_int {
    exec::prepare();
    // SAFETY: the program's own call.
    unsafe { next::execvp(file, argv) }
}

pub unsafe fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    exec::prepare();
    // SAFETY: the program's own call.
    unsafe { next::execvpe(file, argv, envp) }
}

pub unsafe fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    exec::prepare();
    // SAFETY: the program's own call.
    unsafe { next::fexecve(fd, argv, envp) }
}

pub unsafe fn execveat(dir: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int {
    exec::prepare();
    // SAFETY: the program's own call.
    unsafe { next::execveat(dir, path, argv, envp, flags) }
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

pub unsafe fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attr: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    exec::surrender_inherited();
    // SAFETY: the program's own call.
    unsafe { next::posix_spawn(pid, path, actions, attr, argv, envp) }
}

pub unsafe fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attr: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    exec::surrender_inherited();
    // SAFETY: the program's own call.
    unsafe { next::posix_spawnp(pid, file, actions, attr, argv, envp) }
}

pub unsafe fn system(command: *const c_char) -> c_int {
    exec::surrender_inherited();
    // SAFETY: the program's own call.
    unsafe { next::system(command) }
}

pub unsafe fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    exec::surrender_inherited();
    // SAFETY: the program's own call.
    unsafe { next::popen(command, mode) }
}

/// The spawned program will have the connection under another number, even if ours is close-on-exec.
pub unsafe fn adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int {
    if let Some(index) = conn(fd) {
        errno::keep(|| life::surrender(arena::conn(index), fd, Reason::Exec));
    }
    // SAFETY: the program's own call.
    unsafe { next::posix_spawn_file_actions_adddup2(actions, fd, new) }
}

/// The operations of seccomp(2) that restrict the caller.
const CONFINES: [u32; 2] = [libc::SECCOMP_SET_MODE_STRICT, libc::SECCOMP_SET_MODE_FILTER];

pub unsafe fn prctl(option: c_int, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        exec::confine();
    }
    // SAFETY: the program's own call.
    unsafe { next::prctl(option, b, c, d, e) }
}

/// Calls of interest go to the hook of the same name; all others are passed on as they are.
pub unsafe fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    let fd = a as c_int;
    let (pb, pc, pd) = (b as *mut c_void, c as *mut c_void, d as *mut c_void);
    // SAFETY: each arm is the program's own call under its libc name, with the same arguments.
    unsafe {
        match number {
            libc::SYS_read => rw::read(fd, pb, c) as c_long,
            libc::SYS_write => rw::write(fd, pb, c) as c_long,
            libc::SYS_readv => rw::readv(fd, pb.cast(), c as c_int) as c_long,
            libc::SYS_writev => rw::writev(fd, pb.cast(), c as c_int) as c_long,
            libc::SYS_recvfrom => {
                rw::recvfrom(fd, pb, c, d as c_int, (e as *mut c_void).cast(), (f as *mut c_void).cast()) as c_long
            }
            libc::SYS_sendto => rw::sendto(fd, pb, c, d as c_int, (e as *mut c_void).cast(), f as u32) as c_long,
            libc::SYS_recvmsg => msg::recvmsg(fd, pb.cast(), c as c_int) as c_long,
            libc::SYS_sendmsg => msg::sendmsg(fd, pb.cast(), c as c_int) as c_long,
            libc::SYS_recvmmsg => {
                c_long::from(msg::recvmmsg(fd, pb.cast(), c as u32, d as c_int, (e as *mut c_void).cast()))
            }
            libc::SYS_sendmmsg => c_long::from(msg::sendmmsg(fd, pb.cast(), c as u32, d as c_int)),
            libc::SYS_sendfile => files::sendfile(fd, b as c_int, pc.cast(), d) as c_long,
            libc::SYS_splice => files::splice(fd, pb.cast(), c as c_int, pd.cast(), e, f as u32) as c_long,
            libc::SYS_close => c_long::from(fds::close(fd)),
            libc::SYS_close_range => c_long::from(fds::close_range(a as u32, b as u32, c as c_int)),
            libc::SYS_dup => c_long::from(fds::dup(fd)),
            libc::SYS_dup3 => c_long::from(fds::dup3(fd, b as c_int, c as c_int)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => c_long::from(fds::dup2(fd, b as c_int)),
            libc::SYS_fcntl => c_long::from(fds::fcntl(fd, b as c_int, c)),
            libc::SYS_ioctl => c_long::from(fds::ioctl(fd, b as u64, c)),
            libc::SYS_shutdown => c_long::from(sockets::shutdown(fd, b as c_int)),
            libc::SYS_connect => c_long::from(sockets::connect(fd, pb.cast(), c as u32)),
            libc::SYS_accept => c_long::from(sockets::accept(fd, pb.cast(), pc.cast())),
            libc::SYS_accept4 => c_long::from(sockets::accept4(fd, pb.cast(), pc.cast(), d as c_int)),
            libc::SYS_setsockopt => c_long::from(sockets::setsockopt(fd, b as c_int, c as c_int, pd, e as u32)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => c_long::from(poll::poll((a as *mut c_void).cast(), b as u64, c as c_int)),
            libc::SYS_ppoll => c_long::from(poll::ppoll((a as *mut c_void).cast(), b as u64, pc.cast(), pd.cast())),
            libc::SYS_epoll_ctl => c_long::from(poll::epoll_ctl(fd, b as c_int, c as c_int, pd.cast())),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => c_long::from(poll::epoll_wait(fd, pb.cast(), c as c_int, d as c_int)),
            libc::SYS_epoll_pwait => {
                c_long::from(poll::epoll_pwait(fd, pb.cast(), c as c_int, d as c_int, (e as *mut c_void).cast()))
            }
            libc::SYS_epoll_pwait2 => {
                c_long::from(poll::epoll_pwait2(fd, pb.cast(), c as c_int, pd.cast(), (e as *mut c_void).cast()))
            }
            libc::SYS_epoll_create1 => c_long::from(poll::epoll_create1(a as c_int)),
            libc::SYS_io_uring_setup => {
                // From here on the kernel may read and write sockets by itself.
                exec::surrender_all(Reason::KernelFeature);
                next::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_prctl => c_long::from(prctl(a as c_int, b as c_ulong, c as c_ulong, d as c_ulong, e as c_ulong)),
            libc::SYS_seccomp if CONFINES.contains(&(a as u32)) => {
                exec::confine();
                next::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_exit_group => {
                exec::leave();
                next::syscall(number, a, b, c, d, e, f)
            }
            _ => next::syscall(number, a, b, c, d, e, f),
        }
    }
}
