//! Reads Services, captured pods and policies from the YAML files of a directory, and follows their changes.
//!
//! A file is read when its writer has closed it, or when it has been renamed into its place: never half-written. A file that
//! cannot be read keeps its previous content. Other files in the directory are ignored.

mod files;
mod touched;

use crate::message::{EventSink, Gone, Refresher, Source, Update};
use files::{FileError, Files};
use notify::event::Flag;
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use sidestep_error::chain;
use sidestep_mesh::object::{Key, Object};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use touched::{Touched, is_ours};

pub struct Directory {
    path: PathBuf,
    /// Only captures and policies are read: Services come from another source.
    only_captures: bool,
    files: Files,
    /// Files with an object that another file names, too.
    doubled: BTreeSet<PathBuf>,
    /// Files that could not be read, whether they exist or not.
    troubled: BTreeSet<PathBuf>,
    events: Arc<Mutex<Option<Events>>>,
}

/// The channel of the directory's events, while it is watched.
type Events = Sender<notify::Result<Event>>;

/// A file that is being renamed is absent for a moment.
const RENAMED: Duration = Duration::from_millis(2);
/// How often a directory that is gone is looked for.
const AGAIN: Duration = Duration::from_secs(1);
impl Source for Directory {
    fn name(&self) -> String {
        format!("directory {}", self.path.display())
    }

    fn refresher(&self) -> Refresher {
        let events = Arc::clone(&self.events);
        Box::new(move || {
            // While there is no watch, the directory is read anyway. The Rescan flag makes the watch read everything.
            if let Some(events) = &*events.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = events.send(Ok(Event::default().set_flag(Flag::Rescan)));
            }
        })
    }

    fn run(mut self: Box<Self>, sink: &EventSink) -> Result<(), Gone> {
        loop {
            match self.watch() {
                Ok((watcher, events)) => {
                    sink.well(self.path.display())?;
                    self.follow(&events, sink)?;
                    drop(watcher);
                }
                Err(why) => sink.trouble(self.path.display(), why)?,
            }
            std::thread::sleep(AGAIN);
        }
    }
}

impl Directory {
    pub fn new(path: PathBuf) -> Directory {
        Directory {
            path,
            only_captures: false,
            files: Files::default(),
            doubled: BTreeSet::new(),
            troubled: BTreeSet::new(),
            events: Arc::default(),
        }
    }

    /// A directory for captures and policies only.
    pub fn of_captures(path: PathBuf) -> Directory {
        Directory { only_captures: true, ..Directory::new(path) }
    }

    fn objects(&self, path: &Path) -> Result<BTreeMap<Key, Object>, FileError> {
        let objects = files::objects(path)?;
        match objects.keys().find(|key| self.only_captures && !matches!(key, Key::Capture(_) | Key::Policy(_))) {
            Some(other) => Err(FileError::OtherKind(other.clone())),
            None => Ok(objects),
        }
    }

    fn watch(&self) -> notify::Result<(RecommendedWatcher, Receiver<notify::Result<Event>>)> {
        let (sender, events) = channel();
        let mut watcher = notify::recommended_watcher(sender.clone())?;
        watcher.watch(&self.path, RecursiveMode::NonRecursive)?;
        *self.events.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Ok((watcher, events))
    }

    /// Reads everything, and then each change, until the directory is gone.
    fn follow(&mut self, events: &Receiver<notify::Result<Event>>, sink: &EventSink) -> Result<(), Gone> {
        let Some(all) = self.all(sink)? else { return Ok(()) };
        self.read(all, sink)?;
        sink.tell(Update::Listed)?;
        while let Ok(first) = events.recv() {
            let mut touched = Touched::default();
            touched.add(&first, &self.path);
            if touched.has_lost_a_file() {
                // The file may be about to appear under another name.
                std::thread::sleep(RENAMED);
            }
            while let Ok(next) = events.try_recv() {
                touched.add(&next, &self.path);
            }
            let files = if touched.everything {
                let Some(all) = self.all(sink)? else { return Ok(()) };
                all.union(&touched.files).cloned().collect()
            } else {
                touched.files
            };
            if !files.is_empty() {
                self.read(files, sink)?;
            }
        }
        Ok(())
    }

    /// The present and the previous files. None: the directory cannot be read.
    fn all(&self, sink: &EventSink) -> Result<Option<BTreeSet<PathBuf>>, Gone> {
        let listed = std::fs::read_dir(&self.path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        match listed {
            Ok(entries) => {
                let there = entries.into_iter().map(|entry| entry.path()).filter(|path| is_ours(path));
                let before = self.files.paths().chain(&self.troubled).cloned();
                Ok(Some(there.chain(before).collect()))
            }
            Err(error) => {
                sink.trouble(self.path.display(), format!("cannot list it: {}", chain(&error)))?;
                Ok(None)
            }
        }
    }

    fn read(&mut self, files: BTreeSet<PathBuf>, sink: &EventSink) -> Result<(), Gone> {
        let (mut changed, mut understood) = (BTreeSet::new(), BTreeSet::new());
        for path in files {
            match self.objects(&path) {
                Ok(objects) => {
                    self.troubled.remove(&path);
                    changed.extend(self.files.replace(path.clone(), objects));
                    understood.insert(path);
                }
                Err(error) => {
                    sink.trouble(path.display(), chain(&error))?;
                    self.troubled.insert(path);
                }
            }
        }
        if !changed.is_empty() {
            sink.tell(Update::Changes(changed.into_iter().map(|key| self.files.change(key)).collect()))?;
        }
        // Well comes after the changes: what an earlier agent has left besides is removed as soon as nothing is hidden.
        understood.iter().try_for_each(|path| sink.well(path.display()))?;
        self.complain(understood, sink)
    }

    /// Reports objects of these files that another file names, too, and ends reports that no longer apply.
    fn complain(&mut self, files: BTreeSet<PathBuf>, sink: &EventSink) -> Result<(), Gone> {
        let before = std::mem::take(&mut self.doubled);
        for path in before.union(&files) {
            let doubles = self.files.doubles(path);
            if !doubles.is_empty() {
                sink.trouble(path.display(), doubles.join("; "))?;
                self.doubled.insert(path.clone());
            } else if before.contains(path) {
                sink.well(path.display())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
