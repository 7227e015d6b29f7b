//! Which network namespace a thread is in, as programs of the kernel know it.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::mem::size_of_val;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The cookie of the calling thread's network namespace: a number that no other namespace ever has (5.14).
pub fn cookie() -> io::Result<u64> {
    let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("[::1]:0"))?;
    let mut cookie = 0u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: `cookie` has room for `length` bytes, and both live until the call returns.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            std::ptr::from_mut(&mut cookie).cast(),
            &mut length,
        )
    };
    if outcome == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// The cookie of the network namespace that this file stands for, such as `/proc/PID/ns/net`.
pub fn cookie_of(namespace: &Path) -> io::Result<u64> {
    inside(namespace, cookie)?
}

/// Does the work in the network namespace that this file stands for.
pub fn inside<T: Send>(namespace: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let file = File::open(namespace)?;
    // A thread of its own moves there and ends there.
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        });
        inside.join().expect("it does not panic")
    })
}

/// Files that stand for network namespaces: those that are mounted anywhere, and those of processes. Some may stand for
/// the same one, and some be gone by now.
pub fn all() -> impl Iterator<Item = PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted: Vec<PathBuf> = mounts.lines().filter_map(mounted).collect();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit());
    let processes = entries.map(|entry| entry.path()).filter(is_process).map(|path| path.join("ns/net"));
    mounted.into_iter().chain(processes)
}

/// Of [`all`], those that stand for these namespaces, each with the inode by which it is given.
pub fn files_of(inodes: &BTreeSet<u64>) -> impl Iterator<Item = (u64, PathBuf)> {
    all().filter_map(|path| Some((inode(&path).filter(|inode| inodes.contains(inode))?, path)))
}

/// Of the file, if it is there.
pub fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).map(|file| file.ino()).ok()
}

/// A line of proc_pid_mountinfo(5), if it is about a network namespace. A name with a blank in it is not understood.
fn mounted(line: &str) -> Option<PathBuf> {
    let mut words = line.split(' ').skip(3);
    let (root, point) = (words.next()?, words.next()?);
    root.starts_with("net:[").then(|| point.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_namespaces_are_told_from_other_mounts() {
        let line = "3044 28 0:4 net:[4026532290] /run/netns/web-1 rw shared:1521 - nsfs nsfs rw";
        assert_eq!(mounted(line), Some("/run/netns/web-1".into()));
        let others =
            ["28 1 254:1 / / rw - ext4 /dev/vda rw", "3044 28 0:4 mnt:[4026532290] /run/x rw - nsfs nsfs rw", ""];
        assert!(others.iter().all(|line| mounted(line).is_none()));
    }

    #[test]
    fn the_namespace_of_this_process_is_found() {
        let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert!(all().any(|path| std::fs::metadata(path).is_ok_and(|found| found.ino() == own)));
    }
}
