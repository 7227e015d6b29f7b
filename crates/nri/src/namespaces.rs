//! Enrolled namespaces of the cluster. The runtime does not know the labels of namespaces, so their names come from options, and
//! from a file that the agent or an operator writes.

use rustix::fs::{Mode, OFlags};
use sidestep_agent_api::LARGEST_NAMESPACES_FILE as LARGEST;
use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Names from options and from a file.
pub struct Namespaces {
    fixed: HashSet<String>,
    file: Option<Followed>,
    /// Whether a question was answered while there was no file.
    has_missed: bool,
}

/// A file that is read again when it has changed.
struct Followed {
    path: PathBuf,
    /// Of the last reading; None: there was no file.
    version: Option<Version>,
    names: HashSet<String>,
}

/// What changes with a file's content, or with the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Version {
    fn of(meta: &Metadata) -> Version {
        Version { inode: meta.ino(), size: meta.size(), changed: (meta.ctime(), meta.ctime_nsec()) }
    }
}

impl Namespaces {
    /// `file`: a name a line; `#` begins a comment.
    pub fn new(fixed: impl IntoIterator<Item = String>, file: Option<PathBuf>) -> Namespaces {
        let followed = |path| Followed { path, version: None, names: HashSet::new() };
        Namespaces { fixed: fixed.into_iter().collect(), file: file.map(followed), has_missed: false }
    }

    /// Whether a namespace is enrolled now. Asks the file each time.
    pub fn contains(&mut self, name: &str) -> bool {
        let is_in_file = self.file.as_mut().is_some_and(|file| {
            file.refresh();
            self.has_missed |= file.version.is_none();
            file.names.contains(name)
        });
        is_in_file || self.fixed.contains(name)
    }

    /// Whether [`Namespaces::contains`] has answered without the file, and [`Namespaces::have_come`] has not yet said that it is there.
    pub fn has_missed(&self) -> bool {
        self.has_missed
    }

    /// Whether there is a file now, and an answer was given without; once.
    pub fn have_come(&mut self) -> bool {
        let Some(file) = self.file.as_mut().filter(|_| self.has_missed) else { return false };
        file.refresh();
        self.has_missed = file.version.is_none();
        !self.has_missed
    }
}

impl Followed {
    /// Reads the file if it has changed. While it cannot be read, its last content counts.
    fn refresh(&mut self) {
        match self.path.metadata() {
            Ok(meta) if self.version == Some(Version::of(&meta)) => {}
            Ok(_) => {
                if let Ok((version, names)) = read(&self.path) {
                    (self.version, self.names) = (Some(version), names);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (self.version, self.names) = (None, HashSet::new());
            }
            Err(_) => {}
        }
    }
}

fn read(path: &Path) -> io::Result<(Version, HashSet<String>)> {
    // A FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > LARGEST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text)?;
    let names = text.lines().filter_map(|line| line.split('#').next()).map(str::trim).filter(|name| !name.is_empty());
    Ok((Version::of(&meta), names.map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{remove_file, rename, write};

    #[test]
    fn the_file_is_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, next) = (directory.path().join("namespaces"), directory.path().join("next"));
        let mut names = Namespaces::new(["fixed".into()], Some(path.clone()));
        assert!(names.contains("fixed") && !names.contains("shop"), "there is no file yet");
        assert!(names.has_missed() && !names.have_come());

        let replace = |text: &str| write(&next, text).and_then(|()| rename(&next, &path)).expect("replaced");
        replace("# enrolled\nshop\n  web # front\n\n");
        assert!(names.contains("shop") && names.contains("web") && names.contains("fixed"));
        assert!(names.have_come() && !names.have_come() && !names.has_missed(), "once");
        assert!(!names.contains("#") && !names.contains("") && !names.contains("front"));

        replace("web\n");
        assert!(!names.contains("shop") && names.contains("web"));

        remove_file(&path).expect("removed");
        assert!(!names.contains("web") && names.contains("fixed") && names.has_missed());
        let mut without = Namespaces::new([], None);
        assert!(!without.contains("web") && !without.has_missed(), "nobody waits for a file that there is not to be");
    }

    #[test]
    fn what_is_no_such_file_changes_nothing_and_does_not_wait() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("namespaces");
        let mut names = Namespaces::new([], Some(path.clone()));
        write(&path, "shop\n").expect("written");
        assert!(names.contains("shop"));

        remove_file(&path).expect("removed");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
        assert!(names.contains("shop"), "the last content counts");

        remove_file(&path).expect("removed");
        write(&path, vec![b'a'; LARGEST as usize + 1]).expect("written");
        assert!(names.contains("shop"), "a file that is too large");

        write(&path, b"web\n\xff\n").expect("written");
        assert!(names.contains("shop"), "a file that is no text");
    }
}
