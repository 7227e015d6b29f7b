//! Files of network namespaces: which namespace a file stands for, and when such files come and go.

use super::Order;
use notify::event::ModifyKind;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use rustix::fs::{OFlags, fstatfs};
use sidestep_ebpf::netns::cookie_of;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

/// The directory of ip-netns(8).
pub const NAMED: &str = "/run/netns";
/// `f_type` in statfs(2).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// An open namespace: it stays the same one, whatever happens to its name.
pub struct Opened {
    file: File,
    /// Identifies the namespace while it lives.
    pub identity: Identity,
}

/// Device and inode numbers.
pub type Identity = (u64, u64);

fn identity(of: &Metadata) -> Identity {
    (of.dev(), of.ino())
}

impl Opened {
    /// None: no namespace has this name (ip-netns(8) first creates a plain file).
    pub fn open(path: &Path) -> io::Result<Option<Opened>> {
        let file = match File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path) {
            Err(error) if is_absence(&error) => return Ok(None),
            opened => opened?,
        };
        if fstatfs(&file)?.f_type as u64 != NSFS_MAGIC {
            return Ok(None);
        }
        let identity = identity(&file.metadata()?);
        Ok(Some(Opened { file, identity }))
    }

    /// The path of the open file.
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.file.as_raw_fd().to_string())
    }
}

fn is_absence(error: &io::Error) -> bool {
    // In /proc, the directory of a process that has just ended still exists, but look-ups in it fail with ESRCH.
    let ended = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ended)
}

/// The namespace that has this name now.
pub fn named(path: &Path) -> Option<Identity> {
    std::fs::metadata(path).ok().map(|found| identity(&found))
}

/// The cookie of the namespace that has this name now: unlike its identity, no later namespace gets it.
pub fn cookie_at(path: &Path) -> Option<u64> {
    let opened = Opened::open(path).ok()??;
    cookie_of(&opened.path()).ok()
}

fn is_about_names(kind: EventKind) -> bool {
    matches!(kind, EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)))
}

/// Reports names that come and go. None: the directory does not exist yet.
pub fn watch(orders: &Sender<Order>) -> Option<RecommendedWatcher> {
    let orders = orders.clone();
    let send = move |order| orders.send(order).map_err(drop);
    let tell = move |event: notify::Result<notify::Event>| {
        let told = match event {
            // Opening a file, as this agent does, is not an event of interest.
            Ok(event) if !event.need_rescan() && !is_about_names(event.kind) => Ok(()),
            Ok(event) if !event.need_rescan() => event.paths.into_iter().try_for_each(|path| send(Order::Named(path))),
            _ => send(Order::Renamed),
        };
        let _ = told; // fails if the agent is about to end
    };
    let mut watcher = notify::recommended_watcher(tell).ok()?;
    watcher.watch(Path::new(NAMED), RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}
