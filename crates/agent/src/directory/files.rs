//! The objects in a directory's files, and the file that defines each object.

use rustix::fs::OFlags;
use sidestep_mesh::object::{Key, Object};
use sidestep_mesh::state::Change;
use sidestep_mesh::yaml::{self, Wrong};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The objects of all valid files.
#[derive(Default)]
pub struct Files {
    objects: HashMap<PathBuf, BTreeMap<Key, Object>>,
    /// The files that name each object; the first one defines it.
    named_in: HashMap<Key, BTreeSet<PathBuf>>,
}

/// Ten times as much as all Services of a large cluster need.
pub const MOST_BYTES: u64 = 64 << 20;

impl Files {
    /// Replaces a file's objects. Returns the keys that may be affected.
    pub fn replace(&mut self, path: PathBuf, new: BTreeMap<Key, Object>) -> BTreeSet<Key> {
        let old = self.objects.remove(&path).unwrap_or_default();
        let touched: BTreeSet<Key> = old.keys().chain(new.keys()).cloned().collect();
        for key in &touched {
            let files = self.named_in.entry(key.clone()).or_default();
            if new.contains_key(key) {
                files.insert(path.clone())
            } else {
                files.remove(&path)
            };
        }
        if !new.is_empty() {
            self.objects.insert(path, new);
        }
        touched
    }

    /// Files with objects.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.objects.keys()
    }

    /// The object's definition, by the first file that names it.
    pub fn change(&mut self, key: Key) -> Change {
        let first = self.named_in.get(&key).and_then(|files| files.first());
        match first.and_then(|path| self.objects.get(path)?.get(&key)) {
            Some(object) => Change::Put(object.clone()),
            None => {
                self.named_in.remove(&key);
                Change::Delete(key)
            }
        }
    }

    /// Problems: objects that another file names, too.
    pub fn doubles(&self, path: &Path) -> Vec<String> {
        let other = |key: &Key| self.named_in.get(key)?.iter().find(|file| *file != path);
        let both = self.objects.get(path).into_iter().flatten().filter_map(|(key, _)| Some((key, other(key)?)));
        both.map(|(key, file)| format!("{key} is also in {}: the first by name counts", file.display())).collect()
    }
}

/// Why a file's objects cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read it")]
    Read(#[from] io::Error),
    #[error("cannot read it: not a regular file")]
    NotRegular,
    #[error("cannot read it: more than {} MiB", MOST_BYTES >> 20)]
    TooLong,
    #[error(transparent)]
    Wrong(#[from] Wrong),
    #[error("{0} occurs twice")]
    Twice(Key),
    #[error("{0}: only objects of kind Capture and Policy are read here")]
    OtherKind(Key),
}

/// The objects of a file; empty if the file does not exist.
pub fn objects(path: &Path) -> Result<BTreeMap<Key, Object>, FileError> {
    let text = match content(path) {
        Err(FileError::Read(error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let mut objects = BTreeMap::new();
    for object in yaml::parse(&text)? {
        if let Some(double) = objects.insert(object.key(), object) {
            return Err(FileError::Twice(double.key()));
        }
    }
    Ok(objects)
}

/// The content of a regular file, also through links. A pipe is not opened: that would block until it has a writer.
fn content(path: &Path) -> Result<String, FileError> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileError::NotRegular);
    }
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(FileError::TooLong);
    }
    Ok(text)
}
