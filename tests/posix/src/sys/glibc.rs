//! Functions that glibc exports and the libc crate does not declare: the checked twins that
//! _FORTIFY_SOURCE calls, the `__name` aliases, and a few newer calls.

use libc::{
    c_char, c_int, c_uint, c_ulong, c_void, epoll_event, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};

unsafe extern "C" {
    pub fn __read(fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t;
    pub fn __write(fd: c_int, buf: *const c_void, n: size_t) -> ssize_t;
    pub fn __send(fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t;
    pub fn __close(fd: c_int) -> c_int;
    pub fn __connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    pub fn __poll(fds: *mut pollfd, n: c_ulong, timeout: c_int) -> c_int;
    pub fn __fcntl(fd: c_int, cmd: c_int, ...) -> c_int;
    pub fn __dup2(old: c_int, new: c_int) -> c_int;
    pub fn __select(
        n: c_int,
        read: *mut c_void,
        write: *mut c_void,
        except: *mut c_void,
        timeout: *mut libc::timeval,
    ) -> c_int;

    pub fn __read_chk(fd: c_int, buf: *mut c_void, n: size_t, size: size_t) -> ssize_t;
    pub fn __recv_chk(fd: c_int, buf: *mut c_void, n: size_t, size: size_t, flags: c_int) -> ssize_t;
    pub fn __recvfrom_chk(
        fd: c_int,
        buf: *mut c_void,
        n: size_t,
        size: size_t,
        flags: c_int,
        addr: *mut sockaddr,
        len: *mut socklen_t,
    ) -> ssize_t;
    pub fn __poll_chk(fds: *mut pollfd, n: c_ulong, timeout: c_int, size: size_t) -> c_int;
    pub fn __ppoll_chk(
        fds: *mut pollfd,
        n: c_ulong,
        timeout: *const timespec,
        mask: *const sigset_t,
        size: size_t,
    ) -> c_int;
    pub fn dprintf(fd: c_int, format: *const c_char, ...) -> c_int;
    pub fn __dprintf_chk(fd: c_int, flag: c_int, format: *const c_char, ...) -> c_int;

    pub fn fcntl64(fd: c_int, cmd: c_int, ...) -> c_int;
    pub fn preadv64v2(fd: c_int, iov: *const libc::iovec, n: c_int, at: i64, flags: c_int) -> ssize_t;
    pub fn pwritev64v2(fd: c_int, iov: *const libc::iovec, n: c_int, at: i64, flags: c_int) -> ssize_t;
    pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    pub fn closefrom(first: c_int);
    pub fn epoll_pwait2(
        epfd: c_int,
        events: *mut epoll_event,
        n: c_int,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int;
    pub fn execveat(
        dir: c_int,
        path: *const c_char,
        argv: *const *const c_char,
        envp: *const *const c_char,
        flags: c_int,
    ) -> c_int;
    pub fn posix_spawn_file_actions_addclosefrom_np(
        actions: *mut libc::posix_spawn_file_actions_t,
        from: c_int,
    ) -> c_int;
    pub fn daemon(nochdir: c_int, noclose: c_int) -> c_int;
}
