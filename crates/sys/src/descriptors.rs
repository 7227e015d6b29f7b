//! The epoll sets of a process (proc(5), kcmp(2)).

use crate::{call, fd as fdsys, process};
use libc::{EBADF, ENOENT, ESRCH};

/// So many descriptors are looked at, at most.
const MOST: usize = 1024;
/// `KCMP_FILE` of linux/kcmp.h: whether two descriptors stand for the same open file.
const SAME_FILE: usize = 0;
/// Where the name of a `struct linux_dirent64` begins, and where its length stands.
const NAME: usize = 19;
const LENGTH: usize = 16;

/// Whether a process has a descriptor of our epoll set `epfd`. A process that is gone has none. None: the kernel does not tell.
pub fn has_epoll_set(pid: u32, epfd: i32) -> Option<bool> {
    any_epoll_set(pid, |number| is_same(pid, epfd, number))
}

/// Whether a descriptor of this process that stands for an epoll set passes the test. None: the kernel does not tell.
pub fn have_epoll_set(test: impl Fn(i32) -> bool) -> Option<bool> {
    any_epoll_set(process::pid(), |number| Some(test(number)))
}

fn any_epoll_set(pid: u32, test: impl Fn(i32) -> Option<bool>) -> Option<bool> {
    let directory = match process::open(process::path_of(pid, b"/fd\0").as_ptr()) {
        Ok(directory) => directory,
        Err(error) => return [ENOENT, ESRCH].contains(&error.0).then_some(false),
    };
    let found = find(directory, |name| match is_epoll_set(directory, name) {
        true => test(core::str::from_utf8(&name[..name.len() - 1]).ok()?.parse().ok()?),
        false => Some(false),
    });
    fdsys::close(directory);
    found
}

/// Whether a name in the directory passes the test. None: the test, or the kernel, does not tell.
fn find(directory: i32, test: impl Fn(&[u8]) -> Option<bool>) -> Option<bool> {
    let mut entries = [0_u8; 2048];
    let mut seen = 0;
    loop {
        let args = [directory as usize, entries.as_mut_ptr() as usize, entries.len(), 0, 0, 0];
        // SAFETY: a writable buffer with its length.
        let mut rest = &entries[..unsafe { call(libc::SYS_getdents64, args) }.ok()?];
        if rest.is_empty() {
            return Some(false);
        }
        while let Some((name, later)) = first(rest) {
            seen += 1;
            if seen > MOST || test(name)? {
                return (seen <= MOST).then_some(true);
            }
            rest = later;
        }
    }
}

/// The name of the first entry, with its NUL, and the entries behind it.
fn first(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u16::from_ne_bytes(entries.get(LENGTH..LENGTH + 2)?.try_into().ok()?);
    let (entry, later) = entries.split_at_checked(usize::from(length))?;
    let name = entry.get(NAME..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    Some((&name[..=end], later))
}

/// What the link says. No: also "." and "..", and what has been closed meanwhile.
fn is_epoll_set(directory: i32, name: &[u8]) -> bool {
    const KIND: &[u8] = b"anon_inode:[eventpoll]";
    let mut to = [0_u8; KIND.len() + 1];
    let args = [directory as usize, name.as_ptr() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0];
    // SAFETY: a NUL-terminated name and a writable buffer with its length.
    unsafe { call(libc::SYS_readlinkat, args) }.is_ok_and(|n| &to[..n] == KIND)
}

/// Whether descriptor `number` of the process stands for the same file as ours. Containers often forbid this call.
fn is_same(pid: u32, ours: i32, number: i32) -> Option<bool> {
    let args = [process::pid() as usize, pid as usize, SAME_FILE, ours as usize, number as usize, 0];
    // SAFETY: no memory involved.
    match unsafe { call(libc::SYS_kcmp, args) } {
        Ok(order) => Some(order == 0),
        Err(error) => (error.0 == EBADF).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::has_epoll_set;
    use std::process::{Command, Stdio};

    #[test]
    fn a_program_has_the_set_that_it_has_inherited_until_it_closes_it() {
        // SAFETY: a plain value.
        let (kept, closed) = unsafe { (libc::epoll_create1(0), libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let answers = || [kept, closed].map(|set| has_epoll_set(child.id(), set));
        // spawn() returns once exec() has succeeded.
        let seen = answers();
        drop(child.stdin.take());
        child.wait().expect("its end");
        assert_eq!(seen, [Some(true), Some(false)]);
        assert_eq!(has_epoll_set(child.id(), kept), Some(false), "it is gone");
        assert_eq!(has_epoll_set(std::process::id(), kept), Some(true));
    }

    #[test]
    fn a_process_with_very_many_descriptors_is_not_searched_to_the_end() {
        // SAFETY: a plain value.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let files: Vec<_> =
            (0..=super::MOST).map(|_| std::fs::File::open("/dev/null").expect("a descriptor")).collect();
        // SAFETY: plain values.
        let last = unsafe { libc::fcntl(set, libc::F_DUPFD_CLOEXEC, files.len() as i32 + 100) };
        // SAFETY: a descriptor of ours.
        unsafe { libc::close(set) };
        assert_eq!(has_epoll_set(std::process::id(), last), None);
    }
}
