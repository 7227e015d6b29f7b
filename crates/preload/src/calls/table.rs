//! The one table of intercepted calls. `exports`, `next` and `symbols` are made from it. The list in the documentation
//! (`docs/CALLS.md`) and the symbol test are made from it, too.
//!
//! `name(arguments) -> result = hook;` A name behind `also` is another symbol of libc for the same call. The next word says
//! what is called if the program's libc does not have the function: `raw` the system call with the same arguments, `else`
//! a function that does the same, `later` one that fails for as long as no library brings the original. Without any of
//! them the hook needs no original: closefrom() is a close_range(). `first` names a function of `hooks` that is called before the hook.

/// Hands the table to a macro.
macro_rules! table {
    ($make:ident) => {
        $make! {
    read(fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t = rw::read, also __read, raw SYS_read, first end_if_cancelled;
    __read_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t) -> ssize_t = rw::read_chk, first end_if_cancelled;
    readv(fd: c_int, iov: *const iovec, n: c_int) -> ssize_t = rw::readv, raw SYS_readv, first end_if_cancelled;
    preadv2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t = rw::preadv2, also preadv64v2, else stand_in::preadv2, first end_if_cancelled;
    write(fd: c_int, buf: *const c_void, n: size_t) -> ssize_t = rw::write, also __write, raw SYS_write, first end_if_cancelled;
    writev(fd: c_int, iov: *const iovec, n: c_int) -> ssize_t = rw::writev, raw SYS_writev, first end_if_cancelled;
    pwritev2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t = rw::pwritev2, also pwritev64v2, else stand_in::pwritev2, first end_if_cancelled;
    recv(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t = rw::recv, else stand_in::recv, first end_if_cancelled;
    __recv_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t, flags: c_int) -> ssize_t = rw::recv_chk, first end_if_cancelled;
    recvfrom(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int, from: *mut sockaddr, len: *mut socklen_t) -> ssize_t = rw::recvfrom, raw SYS_recvfrom, first end_if_cancelled;
    __recvfrom_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t, flags: c_int, from: *mut sockaddr, len: *mut socklen_t) -> ssize_t = rw::recvfrom_chk, first end_if_cancelled;
    send(fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t = rw::send, also __send, else stand_in::send, first end_if_cancelled;
    sendto(fd: c_int, buf: *const c_void, n: size_t, flags: c_int, to: *const sockaddr, len: socklen_t) -> ssize_t = rw::sendto, raw SYS_sendto, first end_if_cancelled;

    recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t = msg::recvmsg, raw SYS_recvmsg, first end_if_cancelled;
    recvmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec) -> c_int = msg::recvmmsg, raw SYS_recvmmsg, first end_if_cancelled;
    sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t = msg::sendmsg, raw SYS_sendmsg, first end_if_cancelled;
    sendmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int = msg::sendmmsg, raw SYS_sendmmsg, first end_if_cancelled;

    sendfile(out: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t = files::sendfile, also sendfile64, raw SYS_sendfile;
    splice(from: c_int, off_in: *mut off_t, to: c_int, off_out: *mut off_t, n: size_t, flags: c_uint) -> ssize_t = files::splice, raw SYS_splice;
    tee(from: c_int, to: c_int, n: size_t, flags: c_uint) -> ssize_t = files::tee, raw SYS_tee;
    vmsplice(fd: c_int, iov: *const iovec, n: size_t, flags: c_uint) -> ssize_t = files::vmsplice, raw SYS_vmsplice;
    fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE = files::fdopen, also _IO_fdopen, later stand_in::failing_null;
    vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int = files::vdprintf, later stand_in::failing;
    __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, args: *mut c_void) -> c_int = files::vdprintf_chk;
    system(command: *const c_char) -> c_int = processes::system, later stand_in::failing;
    popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE = processes::popen, also _IO_popen, later stand_in::failing_null;
    prctl(option: c_int, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong) -> c_int = processes::prctl, raw SYS_prctl;

    aio_read(request: *mut libc::aiocb) -> c_int = files::aio_read, also aio_read64, later stand_in::failing;
    aio_write(request: *mut libc::aiocb) -> c_int = files::aio_write, also aio_write64, later stand_in::failing;
    lio_listio(mode: c_int, list: *const *mut libc::aiocb, n: c_int, event: *mut c_void) -> c_int = files::lio_listio, also lio_listio64, later stand_in::failing;

    connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int = sockets::connect, also __connect, raw SYS_connect;
    listen(fd: c_int, backlog: c_int) -> c_int = sockets::listen, raw SYS_listen;
    accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int = sockets::accept, raw SYS_accept;
    accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int = sockets::accept4, raw SYS_accept4;
    shutdown(fd: c_int, how: c_int) -> c_int = sockets::shutdown, raw SYS_shutdown;
    getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int = names::getsockname, raw SYS_getsockname;
    getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int = names::getpeername, raw SYS_getpeername;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int = sockets::getsockopt, raw SYS_getsockopt;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int = sockets::setsockopt, raw SYS_setsockopt;

    close(fd: c_int) -> c_int = fds::close, also __close, raw SYS_close;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = fds::close_range, raw SYS_close_range;
    closefrom(first: c_int) -> () = fds::closefrom;
    dup(fd: c_int) -> c_int = fds::dup, raw SYS_dup;
    dup2(fd: c_int, new: c_int) -> c_int = fds::dup2, also __dup2, else stand_in::dup2;
    dup3(fd: c_int, new: c_int, flags: c_int) -> c_int = fds::dup3, raw SYS_dup3;
    fcntl(fd: c_int, command: c_int, arg: usize) -> c_int = fds::fcntl, also fcntl64, also __fcntl, raw SYS_fcntl;
    ioctl(fd: c_int, request: c_ulong, arg: usize) -> c_int = fds::ioctl, raw SYS_ioctl;

    poll(fds: *mut pollfd, n: c_ulong, timeout: c_int) -> c_int = poll::poll, also __poll, else waits::poll, first end_if_cancelled;
    __poll_chk(fds: *mut pollfd, n: c_ulong, timeout: c_int, room: size_t) -> c_int = poll::poll_chk, first end_if_cancelled;
    ppoll(fds: *mut pollfd, n: c_ulong, timeout: *const timespec, mask: *const sigset_t) -> c_int = poll::ppoll, else waits::ppoll, first end_if_cancelled;
    __ppoll_chk(fds: *mut pollfd, n: c_ulong, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int = poll::ppoll_chk, first end_if_cancelled;
    select(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *mut timeval) -> c_int = poll::select, also __select, else waits::select, first end_if_cancelled;
    pselect(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = poll::pselect, else waits::pselect, first end_if_cancelled;
    epoll_create(size: c_int) -> c_int = poll::epoll_create, else waits::epoll_create;
    epoll_create1(flags: c_int) -> c_int = poll::epoll_create1, raw SYS_epoll_create1;
    epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int = poll::epoll_ctl, raw SYS_epoll_ctl;
    epoll_wait(ep: c_int, events: *mut epoll_event, n: c_int, timeout: c_int) -> c_int = poll::epoll_wait, else waits::epoll_wait, first end_if_cancelled;
    epoll_pwait(ep: c_int, events: *mut epoll_event, n: c_int, timeout: c_int, mask: *const sigset_t) -> c_int = poll::epoll_pwait, else waits::epoll_pwait, first end_if_cancelled;
    epoll_pwait2(ep: c_int, events: *mut epoll_event, n: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int = poll::epoll_pwait2, else waits::epoll_pwait2, first end_if_cancelled;

    setrlimit(resource: c_int, new: *const libc::rlimit) -> c_int = processes::setrlimit, also setrlimit64, raw SYS_setrlimit;
    prlimit(pid: pid_t, resource: c_int, new: *const libc::rlimit, old: *mut libc::rlimit) -> c_int = processes::prlimit, also prlimit64, raw SYS_prlimit64;
    unshare(flags: c_int) -> c_int = processes::unshare, raw SYS_unshare;
    setns(fd: c_int, kind: c_int) -> c_int = processes::setns, raw SYS_setns;

    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int = signals::sigaction, also __sigaction, else plain::sigaction;
    signal(signal: c_int, handler: usize) -> usize = signals::signal, also bsd_signal, also ssignal, else plain::signal;
    __sysv_signal(signal: c_int, handler: usize) -> usize = signals::sysv_signal, also sysv_signal, else plain::sysv_signal;
    siginterrupt(signal: c_int, on: c_int) -> c_int = signals::siginterrupt, else plain::siginterrupt;
    sigset(signal: c_int, handler: usize) -> usize = signals::sigset, else plain::sigset;
    sigignore(signal: c_int) -> c_int = signals::sigignore, else plain::sigignore;
    pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int = signals::pthread_sigmask, else plain::pthread_sigmask;
    sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int = signals::sigprocmask, else plain::sigprocmask;

    fork() -> pid_t = processes::fork, else stand_in::fork;
    _Fork() -> pid_t = processes::fork_plain, else stand_in::fork;
    _exit(status: c_int) -> ! = processes::exit, also _Exit, else stand_in::exit;
    execv(path: *const c_char, argv: *const *const c_char) -> c_int = processes::execv, else stand_in::execv;
    execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::execve, raw SYS_execve;
    execvp(file: *const c_char, argv: *const *const c_char) -> c_int = processes::execvp, later stand_in::failing;
    execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::execvpe, later stand_in::failing;
    fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::fexecve, else stand_in::fexecve;
    execveat(dir: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int) -> c_int = processes::execveat, raw SYS_execveat;
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attr: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::posix_spawn, later stand_in::failing_number;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attr: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::posix_spawnp, later stand_in::failing_number;
    pidfd_spawn(pidfd: *mut c_int, path: *const c_char, actions: *const c_void, attr: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::pidfd_spawn, later stand_in::failing_number;
    pidfd_spawnp(pidfd: *mut c_int, file: *const c_char, actions: *const c_void, attr: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int = processes::pidfd_spawnp, later stand_in::failing_number;
    posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int = processes::adddup2, later stand_in::failing_number;
    syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long = syscall::syscall, else stand_in::syscall;
}
    };
}

pub(crate) use table;
