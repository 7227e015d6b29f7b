//! Derives from inotify(7) events which files of a directory have changed.

use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode};
use notify::{Event, EventKind};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files that events concern.
#[derive(Default)]
pub struct Touched {
    pub files: BTreeSet<PathBuf>,
    pub everything: bool,
}

impl Touched {
    pub fn has_lost_a_file(&self) -> bool {
        self.files.iter().any(|path| !path.exists())
    }

    pub fn add(&mut self, event: &notify::Result<Event>, directory: &Path) {
        let Ok(event) = event else {
            self.everything = true;
            return;
        };
        self.everything |= event.need_rescan();
        for path in event.paths.iter().filter(|path| matters(&event.kind, path)) {
            if path == directory || is_volumes(path) {
                self.everything = true;
            } else if is_ours(path) {
                self.files.insert(path.clone());
            }
        }
    }
}

/// Kubernetes replaces all files of a volume by one link, `..data`.
fn is_volumes(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".."))
}

/// Whether the file is complete after the event. A file that was just created is still being written.
fn matters(kind: &EventKind, path: &Path) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Name(RenameMode::From | RenameMode::To))
        | EventKind::Remove(_) => true,
        EventKind::Create(CreateKind::Folder) => false,
        EventKind::Create(_) => is_link(path),
        _ => false,
    }
}

/// Links, symbolic or hard, are complete when they are created.
fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_symlink() || found.nlink() > 1)
}

/// YAML files, and JSON ones, which are YAML, too. Hidden files belong to editors and volumes.
pub fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default();
    !name.starts_with('.') && ["yaml", "yml", "json"].iter().any(|known| extension == *known)
}
