//! A directory that only the broker's own user and root can enter, and names of files in it.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Directory for a broker of root.
const OF_ROOT: &str = "/run/sidestep-operator";
/// Most readable characters of an address in the name of a file.
pub(crate) const READABLE: usize = 32;

/// Directories for the socket of this user's broker, best first. Each counts only if nobody but the user can enter it.
pub fn directories(uid: u32) -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw() == uid;
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| own && dir.is_absolute());
    let known = PathBuf::from(format!("/run/user/{uid}"));
    let of_root = (uid == 0).then(|| PathBuf::from(OF_ROOT));
    let of_user = [runtime, Some(known)].into_iter().flatten().map(|dir| dir.join("sidestep"));
    of_root.into_iter().chain(of_user).chain([PathBuf::from(format!("/tmp/sidestep-{uid}"))]).collect()
}

/// The directory for the operator's socket, which is made: the first that is possible.
pub(crate) fn directory() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    directories(uid).into_iter().find(|directory| make(directory, uid).is_ok())
}

pub(crate) fn make(directory: &Path, uid: u32) -> Result<(), Errno> {
    match rustix::fs::mkdir(directory, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => make_private(directory, uid),
        Err(e) => Err(e),
    }
}

/// Whether only this user can enter the directory.
pub fn is_private(directory: &Path, uid: u32) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::PATH;
    let stat = rustix::fs::open(directory, flags, Mode::empty()).and_then(rustix::fs::fstat);
    stat.is_ok_and(|stat| stat.st_uid == uid && stat.st_mode & 0o077 == 0)
}

/// Makes a directory of ours private that others may enter: the kubelet makes directories of the host so. If others may write to it,
/// what is in it may be theirs, and it is refused.
fn make_private(directory: &Path, uid: u32) -> Result<(), Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let opened = rustix::fs::open(directory, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&opened)?;
    if stat.st_uid != uid || stat.st_mode & 0o022 != 0 {
        return Err(Errno::PERM);
    }
    if stat.st_mode & 0o077 == 0 { Ok(()) } else { rustix::fs::fchmod(&opened, Mode::RWXU) }
}

/// A name for the file that belongs to an address: a readable part, and a hash of `text`, which tells it from all others.
pub(crate) fn name_of(address: &str, text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let readable: String = address.trim_start_matches(['/', '@']).chars().map(plain).collect();
    let tail = &readable[readable.len().saturating_sub(READABLE)..];
    format!("{tail}-{:016x}", fnv1a(text.as_bytes()))
}

/// The canonical path: a directory may have several names.
pub(crate) fn real(path: &Path) -> PathBuf {
    let directory = path.parent().and_then(|dir| std::fs::canonicalize(dir).ok());
    directory.zip(path.file_name()).map_or_else(|| path.to_owned(), |(dir, name)| dir.join(name))
}

/// Fowler, Noll and Vo's hash. It need not resist attacks: only the owner of the directory chooses names there.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
