//! Files that stand for network namespaces: what they are, and when they come and go.

use super::Order;
use notify::event::ModifyKind;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use rustix::fs::{OFlags, fstatfs};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

/// Where ip-netns(8) names them.
pub const NAMED: &str = "/run/netns";
/// In statfs(2).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// A namespace that is held for a while: whoever has its name, it is the same one.
pub struct Opened {
    file: File,
    /// Which namespace it is, as long as that lives.
    pub identity: Identity,
}

/// Numbers of the device and of the inode.
pub type Identity = (u64, u64);

fn identity(of: &Metadata) -> Identity {
    (of.dev(), of.ino())
}

impl Opened {
    /// None: there is no namespace by this name; ip-netns(8) makes a plain file first.
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

    /// By which the held one is found.
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.file.as_raw_fd().to_string())
    }
}

fn is_absence(error: &io::Error) -> bool {
    // Of a process that has just ended /proc has a directory in which nothing can be looked up.
    let ended = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ended)
}

/// Which namespace has this name now.
pub fn named(path: &Path) -> Option<Identity> {
    std::fs::metadata(path).ok().map(|found| identity(&found))
}

fn is_about_names(kind: EventKind) -> bool {
    matches!(kind, EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)))
}

/// Tells of names that come and go. None: the directory is not there yet.
pub fn watch(orders: &Sender<Order>) -> Option<RecommendedWatcher> {
    let orders = orders.clone();
    let send = move |order| orders.send(order).map_err(drop);
    let tell = move |event: notify::Result<notify::Event>| {
        let told = match event {
            // Whoever opens a file, as we do, tells nothing by it.
            Ok(event) if !event.need_rescan() && !is_about_names(event.kind) => Ok(()),
            Ok(event) if !event.need_rescan() => event.paths.into_iter().try_for_each(|path| send(Order::Named(path))),
            _ => send(Order::Renamed),
        };
        let _ = told; // of an agent that is about to end
    };
    let mut watcher = notify::recommended_watcher(tell).ok()?;
    watcher.watch(Path::new(NAMED), RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}
