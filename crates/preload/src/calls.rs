//! The one table of intercepted calls. It makes the exports, the originals ([`next`]) and the list that the
//! documentation and the symbol test are made from (`docs/CALLS.md`, `tests/`).
//!
//! `name(arguments) -> result = hook;` A name behind `also` is another symbol of libc for the same call.

use crate::hooks::{fds, files, msg, poll, processes, rw, sockets};
use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use libc::{epoll_event, fd_set, iovec, mmsghdr, msghdr, off_t, pid_t, pollfd, sigset_t, size_t, sockaddr};
use libc::{socklen_t, ssize_t, timespec, timeval};

macro_rules! calls {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $hook:path $(, also $alias:ident)*;)*) => {
        /// What the dynamic linker finds first.
        mod exports {
            use super::*;
            $(
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                    // SAFETY: the caller keeps libc's contract for this function; the hook relies on no more.
                    unsafe { $hook($($arg),*) }
                }
                $(
                    #[unsafe(no_mangle)]
                    #[unsafe(naked)]
                    unsafe extern "C" fn $alias() {
                        sidestep_sys::jump_body!($name)
                    }
                )*
            )*
        }

        /// The originals. Not every hook needs its own: closefrom() is a close_range().
        #[allow(non_snake_case, dead_code)]
        pub mod next {
            use super::*;
            $(
                /// # Safety
                /// libc's contract for this function.
                #[inline]
                pub unsafe fn $name($($arg: $ty),*) -> $ret {
                    // SAFETY: the symbol has this signature in every libc that we are built for.
                    let f = unsafe {
                        core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> $ret>(symbols::$name.get())
                    };
                    // SAFETY: by contract.
                    unsafe { f($($arg),*) }
                }
            )*
        }

        #[allow(non_upper_case_globals)]
        mod symbols {
            use crate::symbol::Symbol;
            $(pub static $name: Symbol = Symbol::new(match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            });)*
        }

        /// Looks up all originals.
        pub fn resolve() {
            $(symbols::$name.resolve();)*
        }
    };
}

calls! {
    read(fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t = rw::read, also __read;
    __read_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t) -> ssize_t = rw::read_chk;
    readv(fd: c_int, iov: *const iovec, n: c_int) -> ssize_t = rw::readv;
    preadv2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t = rw::preadv2, also preadv64v2;
    write(fd: c_int, buf: *const c_void, n: size_t) -> ssize_t = rw::write, also __write;
    writev(fd: c_int, iov: *const iovec, n: c_int) -> ssize_t = rw::writev;
    pwritev2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t = rw::pwritev2, also pwritev64v2;
    recv(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t = rw::recv;
    __recv_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t, flags: c_int) -> ssize_t = rw::recv_chk;
    recvfrom(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int, from: *mut sockaddr, len: *mut socklen_t) -> ssize_t = rw::recvfrom;
    __recvfrom_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t, flags: c_int, from: *mut sockaddr, len: *mut socklen_t) -> ssize_t = rw::recvfrom_chk;
    send(fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t = rw::send, also __send;
    sendto(fd: c_int, buf: *const c_void, n: size_t, flags: c_int, to: *const sockaddr, len: socklen_t) -> ssize_t = rw::sendto;

    recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t = msg::recvmsg;
    recvmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec) -> c_int = msg::recvmmsg;
    sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t = msg::sendmsg;
    sendmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int = msg::sendmmsg;

    sendfile(out: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t = files::sendfile, also sendfile64;
    splice(from: c_int, off_in: *mut off_t, to: c_int, off_out: *mut off_t, n: size_t, flags: c_uint) -> ssize_t = files::splice;
    tee(from: c_int, to: c_int, n: size_t, flags: c_uint) -> ssize_t = files::tee;
    vmsplice(fd: c_int, iov: *const iovec, n: size_t, flags: c_uint) -> ssize_t = files::vmsplice;
    fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE = files::fdopen, also _IO_fdopen;
    vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int = files::vdprintf;
    __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, args: *mut c_void) -> c_int = files::vdprintf_chk;
    system(command: *const c_char) -> c_int = processes::system;
    popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE = processes::popen, also _IO_popen;
    prctl(option: c_int, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong) -> c_int = processes::prctl;

    aio_read(request: *mut libc::aiocb) -> c_int = files::aio_read, also aio_read64;
    aio_write(request: *mut libc::aiocb) -> c_int = files::aio_write, also aio_write64;
    lio_listio(mode: c_int, list: *const *mut libc::aiocb, n: c_int, event: *mut c_void) -> c_int = files::lio_listio, also lio_listio64;

    connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int = sockets::connect, also __connect;
    listen(fd: c_int, backlog: c_int) -> c_int = sockets::listen;
    accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int = sockets::accept;
    accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int = sockets::accept4;
    shutdown(fd: c_int, how: c_int) -> c_int = sockets::shutdown;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int = sockets::getsockopt;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int = sockets::setsockopt;

    close(fd: c_int) -> c_int = fds::close, also __close;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = fds::close_range;
    closefrom(first: c_int) -> () = fds::closefrom;
    dup(fd: c_int) -> c_int = fds::dup;
    dup2(fd: c_int, new: c_int) -> c_int = fds::dup2, also __dup2;
    dup3(fd: c_int, new: c_int, flags: c_int) -> c_int = fds::dup3;
    fcntl(fd: c_int, command: c_int, arg: usize) -> c_int = fds::fcntl, also fcntl64, also __fcntl;
    ioctl(fd: c_int, request: c_ulong, arg: usize) -> c_int = fds::ioctl;

    poll(fds: *mut pollfd, n: c_ulong, timeout: c_int) -> c_int = poll::poll, also __poll;
    __poll_chk(fds: *mut pollfd, n: c_ulong, timeout: c_int, room: size_t) -> c_int = poll::poll_chk;
    ppoll(fds: *mut pollfd, n: c_ulong, timeout: *const timespec, mask: *const sigset_t) -> c_int = poll::ppoll;
    __ppoll_chk(fds: *mut pollfd, n: c_ulong, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int = poll::ppoll_chk;
    select(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *mut timeval) -> c_int = poll::select, also __select;
    pselect(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = poll::pselect;
    epoll_create(size: c_int) -> c_int = poll::epoll_create;
    epoll_create1(flags: c_int) -> c_int = poll::epoll_create1;
    epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int = poll::epoll_ctl;
    epoll_wait(ep: c_int, events: *mut epoll_event, n: c_int, timeout: c_int) -> c_int = poll::epoll_wait;
    epoll_pwait(ep: c_int, events: *mut epoll_event, n: c_int, timeout: c_int, mask: *const sigset_t) -> c_int = poll::epoll_pwait;
    epoll_pwait2(ep: c_int, events: *mut epoll_event, n: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int = poll::epoll_pwait2;

    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int = processes::sigaction, also __sigaction;
    signal(signal: c_int, handler: usize) -> usize = processes::signal, also bsd_signal, also ssignal;
    sysv_signal(signal: c_int, handler: usize) -> usize = processes::sysv_signal, also __sysv_signal;
    siginterrupt(signal: c_int, on: c_int) -> c_int = processes::siginterrupt;

    fork() -> pid_t = processes::fork;
    _Fork() -> pid_t = processes::fork_plain;
    _exit(status: c_int) -> ! = processes::exit, also _Exit;
    execv(path: *const c_char, argv: *const *const c_char) -> c_int = processes::execv;
    execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::execve;
    execvp(file: *const c_char, argv: *const *const c_char) -> c_int = processes::execvp;
    execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::execvpe;
    fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::fexecve;
    execveat(dir: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int) -> c_int = processes::execveat;
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attr: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::posix_spawn;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attr: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::posix_spawnp;
    posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int = processes::adddup2;
    syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long = processes::syscall;
}

/// Variadic calls, and vfork, whose exports are jumps: `execl` and its kin collect their arguments in the C
/// shim; vfork must return twice.
mod jumps {
    use sidestep_sys::{jump_body, vfork_body};

    unsafe extern "C" {
        fn ss_execl();
        fn ss_execlp();
        fn ss_execle();
        fn ss_dprintf();
        fn ss_dprintf_chk();
    }

    macro_rules! jumps {
        ($($name:ident => $target:ident;)*) => {$(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                jump_body!($target)
            }
        )*};
    }

    jumps! {
        execl => ss_execl;
        execlp => ss_execlp;
        execle => ss_execle;
        dprintf => ss_dprintf;
        __dprintf_chk => ss_dprintf_chk;
    }

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    unsafe extern "C" fn vfork() -> libc::pid_t {
        vfork_body!(crate::fork::vfork_begins, crate::fork::vfork_ends)
    }

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    unsafe extern "C" fn __vfork() -> libc::pid_t {
        jump_body!(vfork)
    }
}
