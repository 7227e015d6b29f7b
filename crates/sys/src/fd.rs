//! The library's own descriptors, and questions about the program's.

use crate::{Errno, Result, TRIES, call, limit};

/// Lowest number for the library's own descriptors: never 0-2, and never one that a program expects to get next.
pub const LOWEST: i32 = 512;

/// close(2). The number is free afterwards, whatever the result.
pub fn close(fd: i32) {
    // SAFETY: no memory involved; the number is ours to close. An error leaves nothing to do.
    let _ = unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// fcntl(2) with a word as argument.
pub fn fcntl(fd: i32, command: i32, arg: usize) -> Result<usize> {
    // SAFETY: used with commands whose argument is a number.
    unsafe { call(libc::SYS_fcntl, [fd as usize, command as usize, arg, 0, 0, 0]) }
}

/// Lowest number if the limit does not reach beyond [`LOWEST`].
const LOWEST_OF_FEW: i32 = 128;

/// Whether the limit of descriptors (RLIMIT_NOFILE) leaves some for the library. If not, the program needs all of them.
pub fn may_be_ours() -> bool {
    limit::descriptor_limit() >= limit::FEW_DESCRIPTORS as u64
}

/// Checked before the library makes a descriptor, even if only for a moment at a low number.
pub fn check_limit() -> Result<()> {
    if may_be_ours() { Ok(()) } else { Err(Errno(libc::EMFILE)) }
}

/// Moves `fd` to a high number, close-on-exec. With a low descriptor limit it goes as high as it can.
pub fn raise(fd: i32) -> Result<i32> {
    let raised = check_limit().and_then(|()| {
        let mut lowest = LOWEST;
        loop {
            match fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest as usize) {
                Err(_) if lowest > LOWEST_OF_FEW => lowest /= 2,
                result => return result,
            }
        }
    });
    close(fd);
    raised.map(|high| high as i32)
}

/// An eventfd that is always readable, at a high number. Nobody reads it.
pub fn always_readable() -> Result<i32> {
    check_limit()?;
    let flags = libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
    // SAFETY: no memory involved.
    raise(unsafe { call(libc::SYS_eventfd2, [1, flags as usize, 0, 0, 0, 0]) }? as i32)
}

/// An empty doorbell at a high number: an epoll instance. Each process that may ring it has its own eventfd in it, added by
/// edge. So a ring is one write, which cannot block, and which no other process can swallow.
pub fn doorbell() -> Result<i32> {
    check_limit()?;
    // SAFETY: no memory involved.
    raise(unsafe { call(libc::SYS_epoll_create1, [libc::EPOLL_CLOEXEC as usize, 0, 0, 0, 0, 0]) }? as i32)
}

/// epoll_ctl(2) with one event.
pub fn epoll_ctl(set: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    let args = [set as usize, op as usize, fd as usize, &raw mut event as usize, 0, 0];
    // SAFETY: one epoll_event, alive.
    unsafe { call(libc::SYS_epoll_ctl, args) }.map(drop)
}

/// A signalfd for these signals (bit n - 1 is signal n), at a high number.
pub fn signalfd(signals: u64) -> Result<i32> {
    check_limit()?;
    let flags = (libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) as usize;
    // SAFETY: one word of the size that the kernel is told.
    raise(unsafe { call(libc::SYS_signalfd4, [usize::MAX, &raw const signals as usize, 8, flags, 0, 0]) }? as i32)
}

/// Rings a doorbell of another process, by the eventfd in it that only we have. False: the write failed, and the sleeper sleeps
/// on. The eventfd's count never comes near its limit, so nobody needs to read it.
pub fn ring(eventfd: i32) -> bool {
    let one = 1u64;
    // SAFETY: eight readable bytes.
    let add = || unsafe { call(libc::SYS_write, [eventfd as usize, &raw const one as usize, 8, 0, 0, 0]) };
    (0..TRIES).any(|_| add().is_ok())
}

/// Rings a doorbell of our own, which has `always` ([`always_readable`]) in it: EPOLL_CTL_MOD makes an edge, unless the last
/// one has not been taken yet.
pub fn ring_own(doorbell: i32, always: i32) {
    hush(doorbell);
    let (edge, modify) = ((libc::EPOLLIN | libc::EPOLLET) as u32, libc::EPOLL_CTL_MOD);
    // It can only fail for a moment.
    let _ = (0..TRIES).any(|_| epoll_ctl(doorbell, modify, always, edge, 0).is_ok());
}

/// Edges that one call of [`hush`] takes.
const EDGES: usize = 64;
/// Calls of one [`hush`]: enough for more eventfds than a doorbell can have (one for each link, and one of our own).
const CALLS: usize = 16;

/// Makes a doorbell unreadable until it rings again: takes all edges. Bounded, so that peers which ring without end cannot keep
/// us here.
pub fn hush(doorbell: i32) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EDGES];
    let mut take = || {
        let wait = [doorbell as usize, events.as_mut_ptr() as usize, EDGES, 0, 0, 8];
        // SAFETY: room for as many events as the call is told; no timeout, no mask.
        unsafe { call(libc::SYS_epoll_pwait, wait) }
    };
    for _ in 0..CALLS {
        match take() {
            Ok(EDGES) => {}
            Err(e) if e.passes() => {}
            _ => return,
        }
    }
}

/// Result of poll(2) for one socket, without waiting.
pub fn poll_now(fd: i32, events: i16) -> i16 {
    let mut p = libc::pollfd { fd, events, revents: 0 };
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one pollfd and a timespec, both alive during the call; no signal mask.
    let mut poll = || unsafe { call(libc::SYS_ppoll, [&raw mut p as usize, 1, &raw const zero as usize, 0, 8, 0]) };
    if (0..TRIES).any(|_| poll().is_ok()) { p.revents } else { peek_now(fd, events) }
}

/// As [`poll_now`] without poll(2). Without it nobody knows whether a socket takes bytes, so this says yes, and the write finds
/// out.
#[cold]
fn peek_now(fd: i32, events: i16) -> i16 {
    use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};
    let mut byte = 0u8;
    let flags = (libc::MSG_PEEK | libc::MSG_DONTWAIT) as usize;
    // SAFETY: one writable byte, and nobody asks for the sender.
    let found = match unsafe { call(libc::SYS_recvfrom, [fd as usize, &raw mut byte as usize, 1, flags, 0, 0]) } {
        Ok(0) => POLLIN | POLLRDNORM | POLLRDHUP,
        Ok(_) => POLLIN | POLLRDNORM,
        Err(e) if e.passes() => 0,
        Err(_) => POLLIN | POLLRDNORM | POLLERR | POLLHUP,
    };
    (found | POLLOUT | POLLWRNORM) & (events | POLLERR | POLLHUP)
}

/// Appends `line` to the regular file at `path`, and creates it if necessary. Writes to no other kind of file, and never
/// blocks: a user who may write to the directory could have put a link, a pipe or a device in the file's place.
pub fn append(path: &core::ffi::CStr, line: &[u8]) -> Result<()> {
    let how = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC | how;
    let at = libc::AT_FDCWD as usize;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { call(libc::SYS_openat, [at, path.as_ptr() as usize, flags as usize, 0o666, 0, 0]) }? as i32;
    let written = append_to(fd, line);
    close(fd);
    written
}

fn append_to(fd: i32, line: &[u8]) -> Result<()> {
    if !is_regular(fd)? {
        return Err(Errno(libc::EINVAL));
    }
    if !may_grow(fd, line.len()) {
        return Err(Errno(libc::EFBIG));
    }
    // SAFETY: `line` is readable for its length. One write: lines of several processes do not mix.
    unsafe { call(libc::SYS_write, [fd as usize, line.as_ptr() as usize, line.len(), 0, 0, 0]) }.map(drop)
}

fn is_regular(fd: i32) -> Result<bool> {
    // SAFETY: integers: all zero is a value.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one struct stat.
    unsafe { call(libc::SYS_fstat, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0]) }?;
    Ok(stat.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// Whether RLIMIT_FSIZE permits the file to grow: a write beyond it would raise SIGXFSZ.
fn may_grow(fd: i32, by: usize) -> bool {
    let mut limit = [0u64; 2];
    let args = [0, libc::RLIMIT_FSIZE as usize, 0, &raw mut limit as usize, 0, 0];
    // SAFETY: the kernel writes one struct rlimit64, two words.
    let asked = unsafe { call(libc::SYS_prlimit64, args) };
    // SAFETY: no memory involved.
    let size = unsafe { call(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_END as usize, 0, 0, 0]) };
    asked.is_ok() && size.is_ok_and(|size| (size + by) as u64 <= limit[0])
}

/// Writes to stderr, and ignores errors.
pub fn complain(text: &[u8]) {
    // SAFETY: `text` is readable for its length.
    let _ = unsafe { call(libc::SYS_write, [2, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGE: u32 = (libc::EPOLLIN | libc::EPOLLET) as u32;

    fn eventfd() -> i32 {
        let flags = libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
        // SAFETY: no memory involved.
        unsafe { call(libc::SYS_eventfd2, [0, flags as usize, 0, 0, 0, 0]) }.expect("eventfd") as i32
    }

    /// A doorbell with these descriptors in it, and a set that watches the doorbell by edge, like the program's sets.
    fn watched(inside: &[i32]) -> (i32, i32) {
        let (bell, set) = (doorbell().expect("epoll"), doorbell().expect("epoll"));
        inside.iter().for_each(|fd| epoll_ctl(bell, libc::EPOLL_CTL_ADD, *fd, EDGE, 0).expect("add"));
        epoll_ctl(set, libc::EPOLL_CTL_ADD, bell, EDGE, 0).expect("add");
        (bell, set)
    }

    /// Number of events of the set until it has none.
    fn heard(set: i32) -> usize {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let wait = [set as usize, &raw mut event as usize, 1, 0, 0, 8];
        // SAFETY: room for one event, no mask.
        std::iter::from_fn(|| unsafe { call(libc::SYS_epoll_pwait, wait) }.ok().filter(|n| *n > 0)).count()
    }

    #[test]
    fn each_ring_is_heard_once_and_nothing_has_to_be_read() {
        let (a, b) = (eventfd(), eventfd());
        let (bell, set) = watched(&[a, b]);
        assert_eq!(heard(set), 0);
        for ringer in [a, a, b, a, b] {
            assert!(ring(ringer));
            assert_eq!(heard(set), 1, "once, and again with the next ring");
        }
        close(a);
        assert!(ring(b));
        assert_eq!(heard(set), 1, "a peer that is gone takes nothing with it");
        [bell, set, b].into_iter().for_each(close);
    }

    #[test]
    fn a_hushed_doorbell_is_unreadable_until_it_is_rung() {
        let ringers: Vec<i32> = (0..2 * EDGES + 1).map(|_| eventfd()).collect();
        let (bell, set) = watched(&ringers);
        assert!(ringers.iter().all(|r| ring(*r)));
        assert_eq!(poll_now(bell, libc::POLLIN), libc::POLLIN);
        hush(bell);
        assert_eq!((poll_now(bell, libc::POLLIN), heard(set)), (0, 0));
        assert!(ring(ringers[7]));
        assert_eq!((poll_now(bell, libc::POLLIN), heard(set)), (libc::POLLIN, 1));
        ringers.into_iter().chain([bell, set]).for_each(close);
    }

    #[test]
    fn our_own_ring_is_heard_each_time() {
        let always = always_readable().expect("eventfd");
        let peer = eventfd();
        let (bell, set) = watched(&[always, peer]);
        heard(set);
        for _ in 0..3 {
            ring_own(bell, always);
            assert_eq!(poll_now(bell, libc::POLLIN), libc::POLLIN);
            assert_eq!(heard(set), 1);
        }
        // Two rings at once are one. A ring that is not taken does not hide the next one.
        ring_own(bell, always);
        ring(peer);
        ring_own(bell, always);
        assert_eq!(heard(set), 1);
        hush(bell);
        assert_eq!(poll_now(bell, libc::POLLIN), 0);
        ring_own(bell, always);
        assert_eq!(poll_now(bell, libc::POLLIN), libc::POLLIN);
        [bell, set, always, peer].into_iter().for_each(close);
    }

    /// A directory of this test's own, removed at its end.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("sidestep-sys-{name}-{}", crate::process::pid()));
            std::fs::create_dir(&path).expect("a new directory");
            Scratch(path)
        }

        fn append(&self, name: &str) -> Result<()> {
            let path = self.0.join(name).into_os_string().into_encoded_bytes();
            append(&std::ffi::CString::new(path).expect("no NUL in a path"), b"line\n")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).expect("remove the directory");
        }
    }

    #[test]
    fn lines_are_appended_to_regular_files_only() {
        let dir = Scratch::new("append");
        assert_eq!((dir.append("new"), dir.append("new")), (Ok(()), Ok(())));
        assert_eq!(std::fs::read(dir.0.join("new")).expect("the file"), b"line\nline\n");
        std::fs::write(dir.0.join("target"), b"").expect("a file");
        std::os::unix::fs::symlink(dir.0.join("target"), dir.0.join("link")).expect("a link");
        std::os::unix::fs::symlink(dir.0.join("nothing"), dir.0.join("dangling")).expect("a link");
        assert_eq!(dir.append("link"), Err(Errno(libc::ELOOP)));
        assert_eq!(dir.append("dangling"), Err(Errno(libc::ELOOP)));
        assert_eq!(std::fs::read(dir.0.join("target")).expect("the file"), b"");
        assert!(!dir.0.join("nothing").exists());
        assert_eq!(dir.append("."), Err(Errno(libc::EISDIR)));
    }

    #[test]
    fn a_pipe_in_place_of_a_file_is_not_waited_for() {
        let dir = Scratch::new("pipe");
        let path = std::ffi::CString::new(dir.0.join("pipe").into_os_string().into_encoded_bytes()).expect("a path");
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        assert_eq!(dir.append("pipe"), Err(Errno(libc::ENXIO)), "nobody reads it");
        let reader = std::fs::OpenOptions::new().read(true).write(true).open(dir.0.join("pipe")).expect("the pipe");
        assert_eq!(dir.append("pipe"), Err(Errno(libc::EINVAL)), "somebody may");
        drop(reader);
    }
}
