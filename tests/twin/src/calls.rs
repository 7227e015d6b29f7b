//! The calls that generated programs make: all calls of docs/CALLS.md that concern sockets, waits and descriptors, and related
//! ones.

use libc::c_long;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Sends,
    Receives,
    Other,
}

pub struct Known {
    pub name: &'static str,
    pub shape: Shape,
    /// The function returns 64 bits, not an int.
    pub wide: bool,
    /// Number of the system call with the same arguments, for libc's syscall().
    pub number: Option<c_long>,
}

const fn call(name: &'static str, shape: Shape, wide: bool, number: Option<c_long>) -> Known {
    Known { name, shape, wide, number }
}

use Shape::{Other, Receives, Sends};

pub const CALLS: &[Known] = &[
    call("read", Receives, true, Some(libc::SYS_read)),
    call("__read", Receives, true, None),
    call("__read_chk", Receives, true, None),
    call("readv", Receives, true, Some(libc::SYS_readv)),
    call("preadv2", Receives, true, None),
    call("preadv64v2", Receives, true, None),
    call("recv", Receives, true, None),
    call("__recv_chk", Receives, true, None),
    call("recvfrom", Receives, true, Some(libc::SYS_recvfrom)),
    call("__recvfrom_chk", Receives, true, None),
    call("recvmsg", Receives, true, Some(libc::SYS_recvmsg)),
    call("recvmmsg", Receives, false, Some(libc::SYS_recvmmsg)),
    call("write", Sends, true, Some(libc::SYS_write)),
    call("__write", Sends, true, None),
    call("writev", Sends, true, Some(libc::SYS_writev)),
    call("pwritev2", Sends, true, None),
    call("pwritev64v2", Sends, true, None),
    call("send", Sends, true, None),
    call("__send", Sends, true, None),
    call("sendto", Sends, true, Some(libc::SYS_sendto)),
    call("sendmsg", Sends, true, Some(libc::SYS_sendmsg)),
    call("sendmmsg", Sends, false, Some(libc::SYS_sendmmsg)),
    call("sendfile", Sends, true, Some(libc::SYS_sendfile)),
    call("sendfile64", Sends, true, None),
    call("splice", Other, true, Some(libc::SYS_splice)),
    call("tee", Other, true, Some(libc::SYS_tee)),
    call("vmsplice", Other, true, Some(libc::SYS_vmsplice)),
    call("socket", Other, false, None),
    call("bind", Other, false, None),
    call("getsockname", Other, false, None),
    call("getpeername", Other, false, None),
    call("connect", Other, false, Some(libc::SYS_connect)),
    call("__connect", Other, false, None),
    call("listen", Other, false, Some(libc::SYS_listen)),
    call("accept", Other, false, Some(libc::SYS_accept)),
    call("accept4", Other, false, Some(libc::SYS_accept4)),
    call("shutdown", Other, false, Some(libc::SYS_shutdown)),
    call("getsockopt", Other, false, Some(libc::SYS_getsockopt)),
    call("setsockopt", Other, false, Some(libc::SYS_setsockopt)),
    call("close", Other, false, Some(libc::SYS_close)),
    call("__close", Other, false, None),
    call("close_range", Other, false, Some(libc::SYS_close_range)),
    call("dup", Other, false, Some(libc::SYS_dup)),
    call("dup2", Other, false, None),
    call("__dup2", Other, false, None),
    call("dup3", Other, false, Some(libc::SYS_dup3)),
    call("fcntl", Other, false, Some(libc::SYS_fcntl)),
    call("fcntl64", Other, false, None),
    call("__fcntl", Other, false, None),
    call("ioctl", Other, false, Some(libc::SYS_ioctl)),
    call("poll", Other, false, None),
    call("__poll", Other, false, None),
    call("__poll_chk", Other, false, None),
    call("ppoll", Other, false, None),
    call("__ppoll_chk", Other, false, None),
    call("select", Other, false, None),
    call("__select", Other, false, None),
    call("pselect", Other, false, None),
    call("epoll_create", Other, false, None),
    call("epoll_create1", Other, false, Some(libc::SYS_epoll_create1)),
    call("epoll_ctl", Other, false, Some(libc::SYS_epoll_ctl)),
    call("epoll_wait", Other, false, None),
    call("epoll_pwait", Other, false, None),
    call("epoll_pwait2", Other, false, None),
    call("siginterrupt", Other, false, None),
];

pub fn find(name: &str) -> Option<&'static Known> {
    CALLS.iter().find(|known| known.name == name)
}

pub fn shape(name: &str) -> Shape {
    find(name).map_or(Shape::Other, |known| known.shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of the library's table that programs do not make, and the reason.
    const LEFT_OUT: &[(&str, &str)] = &[
        ("fdopen, _IO_fdopen, vdprintf, __vdprintf_chk", "stdio: tests/posix, stdio"),
        ("aio_read, aio_read64, aio_write, aio_write64, lio_listio, lio_listio64", "tests/posix, other"),
        ("system, popen, _IO_popen, execv, execve, execvp, execvpe, fexecve, execveat", "tests/posix, exec"),
        ("posix_spawn, posix_spawnp, posix_spawn_file_actions_adddup2", "tests/posix, spawn"),
        ("pidfd_spawn, pidfd_spawnp", "as posix_spawn, and newer than most libcs"),
        ("prctl, setrlimit, setrlimit64, prlimit, prlimit64", "tests/posix, limits"),
        ("unshare, setns", "tests/posix, pid_namespaces"),
        ("fork, _Fork, _exit, _Exit", "steps of their own: Act::Fork, Act::Exit"),
        ("sigaction, __sigaction, signal, bsd_signal, ssignal, __sysv_signal, sysv_signal", "Act::Handler; handlers"),
        ("sigset, sigignore, pthread_sigmask, sigprocmask", "tests/posix, handlers"),
        ("closefrom", "it would close what the harness needs; close_range is there"),
        ("syscall", "Call::raw"),
    ];

    fn names_of_the_page() -> Vec<String> {
        let page = include_str!("../../../docs/CALLS.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let columns = rows.map(|row| row.split('|').skip(1).take(2).collect::<String>());
        columns.flat_map(|c| c.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn every_intercepted_call_is_made_or_left_out_for_a_reason() {
        let names = names_of_the_page();
        assert!(names.len() > 90, "the page has {} names", names.len());
        let left_out: Vec<&str> = LEFT_OUT.iter().flat_map(|(names, _)| names.split(", ")).collect();
        for name in &names {
            assert!(find(name).is_some() || left_out.contains(&name.as_str()), "{name} is neither made nor left out");
        }
        for name in left_out {
            assert!(names.iter().any(|n| n == name), "{name} is left out, but the library has no such call");
        }
    }
}
