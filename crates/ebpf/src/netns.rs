//! Network namespaces and their cookies, by which the BPF programs know them.

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

/// The cookie of this file's network namespace, such as `/proc/PID/ns/net`.
pub fn cookie_of(namespace: &Path) -> io::Result<u64> {
    inside(namespace, cookie)?
}

/// Runs `work` in the network namespace of this file.
pub fn inside<T: Send>(namespace: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let file = File::open(namespace)?;
    // In a thread of its own, which enters the namespace and ends there.
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        });
        inside.join().expect("`work` does not panic")
    })
}

/// Files of network namespaces: all mounted ones, and those of all processes. Several may be of one namespace, and some may
/// not exist any more.
pub fn all() -> impl Iterator<Item = PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted: Vec<PathBuf> = mounts.lines().filter_map(mounted).collect();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit());
    let processes = entries.map(|entry| entry.path()).filter(is_process).map(|path| path.join("ns/net"));
    mounted.into_iter().chain(processes)
}

/// Those of [`all`] that are of the namespaces with these inodes, each with its inode.
pub fn files_of(inodes: &BTreeSet<u64>) -> impl Iterator<Item = (u64, PathBuf)> {
    all().filter_map(|path| Some((inode(&path).filter(|inode| inodes.contains(inode))?, path)))
}

/// The file's inode, if the file exists.
pub fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).map(|file| file.ino()).ok()
}

/// The mount point in a line of proc_pid_mountinfo(5), if it is a network namespace. Names with blanks are not supported.
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
