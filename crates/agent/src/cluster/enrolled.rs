//! Names of the namespaces that are labelled for rings, in a file for the plugin that gives containers the library: a container
//! runtime does not know the labels of namespaces.
//!
//! The file says what the last complete list and the changes after it say. It is left as it is while the API server is away, and
//! after the agent's end.

use super::news::{Item, Step};
use crate::message::{EventSink, Gone};
use sidestep_agent_api::{LARGEST_NAMESPACES_FILE, RINGS, RINGS_ENABLED};
use sidestep_error::chain;
use sidestep_mesh::object::{Key, Object};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Names = BTreeSet<Arc<str>>;

pub struct Enrolled {
    file: PathBuf,
    names: Names,
    /// Of a list that is being read.
    listed: Option<Names>,
    /// A complete list has been read.
    is_known: bool,
    /// The file may have other names.
    is_due: bool,
}

/// Everybody may read them; only the agent writes.
const MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("cannot write the names of enrolled namespaces; the file stays as it is")]
    Io(#[from] io::Error),
    #[error("the names of {0} enrolled namespaces are more than 1 MiB; the file stays as it is")]
    TooMany(usize),
}

impl Enrolled {
    pub fn new(file: PathBuf) -> Enrolled {
        Enrolled { file, names: Names::new(), listed: None, is_known: false, is_due: false }
    }

    /// What the API server says of namespaces.
    pub fn note(&mut self, step: &Step) {
        match step {
            Step::Begin => self.listed = Some(Names::new()),
            Step::Listed(item) => {
                if let Some(name) = self.name_if_enrolled(item) {
                    self.listed.get_or_insert_default().insert(name);
                }
            }
            Step::End => {
                self.names = self.listed.take().unwrap_or_default();
                (self.is_known, self.is_due) = (true, true);
            }
            Step::Put(item) => {
                let changed = match self.name_if_enrolled(item) {
                    Some(name) => self.names.insert(name),
                    None => self.remove(&item.key),
                };
                self.is_due |= changed;
            }
            Step::Gone(key) => self.is_due |= self.remove(key),
            Step::Failed(_) | Step::Refused(_) => {}
        }
    }

    fn remove(&mut self, key: &Key) -> bool {
        matches!(key, Key::Namespace(name) if self.names.remove(name))
    }

    /// An object that cannot be read stays what it was.
    fn name_if_enrolled(&self, item: &Item) -> Option<Arc<str>> {
        let Key::Namespace(name) = &item.key else { return None };
        let is_enrolled = match &item.object {
            Ok(Some(Object::Namespace(namespace))) => {
                namespace.labels.get(RINGS).is_some_and(|value| &**value == RINGS_ENABLED)
            }
            Ok(_) => false,
            Err(_) => self.names.contains(name),
        };
        (is_enrolled && is_label(name)).then(|| Arc::clone(name))
    }

    /// Brings the file in line, if that may be necessary. After a failure call it again.
    pub fn write(&mut self, sink: &EventSink) -> Result<(), Gone> {
        if !(self.is_known && self.is_due) {
            return Ok(());
        }
        let place = self.file.display();
        match self.try_write() {
            Ok(()) => {
                self.is_due = false;
                sink.well(place)
            }
            Err(error) => sink.outage(place, chain(&error)),
        }
    }

    fn try_write(&self) -> Result<(), WriteError> {
        let text: String = self.names.iter().map(|name| format!("{name}\n")).collect();
        if text.len() as u64 > LARGEST_NAMESPACES_FILE {
            return Err(WriteError::TooMany(self.names.len()));
        }
        if content(&self.file).is_some_and(|known| known == text.as_bytes()) {
            return Ok(());
        }
        let directory = sidestep_files::directory(&self.file);
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
        sidestep_files::write(&self.file, MODE, text.as_bytes())?;
        tracing::info!(namespaces = self.names.len(), file = %self.file.display(), "namespaces enrolled for rings");
        Ok(())
    }
}

/// None: it is no file that can be read.
fn content(path: &Path) -> Option<Vec<u8>> {
    if !path.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let mut found = Vec::new();
    File::open(path).ok()?.take(LARGEST_NAMESPACES_FILE + 1).read_to_end(&mut found).ok()?;
    Some(found)
}

/// As Kubernetes names namespaces (RFC 1123): such a name is one line, and no comment.
fn is_label(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len()) && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, Update};
    use sidestep_mesh::field::Invalid;
    use sidestep_mesh::pod::Namespace;
    use std::fs::{read_to_string, write};
    use std::os::unix::fs::MetadataExt;
    use std::sync::mpsc::{Receiver, channel};

    fn item(name: &str, label: Option<&str>) -> Item {
        let labels = label.map(|value| (RINGS.into(), value.into())).into_iter().collect();
        let namespace = Namespace { name: name.into(), labels, requires_proxy: false, misread: None };
        Item { key: Key::Namespace(name.into()), object: Ok(Some(Object::Namespace(namespace))), assigned: None }
    }

    fn invalid(name: &str) -> Item {
        let error = Invalid { path: "metadata".into(), found: "x".into(), expected: "y" };
        Item { key: Key::Namespace(name.into()), object: Err(error), assigned: None }
    }

    struct World {
        place: tempfile::TempDir,
        enrolled: Enrolled,
        sink: EventSink,
        told: Receiver<Message>,
    }

    impl World {
        fn new() -> World {
            let place = tempfile::tempdir().unwrap();
            let (inbox, told) = channel();
            let enrolled = Enrolled::new(place.path().join("rings/namespaces"));
            World { place, enrolled, sink: EventSink::new(inbox, 0), told }
        }

        fn file(&self) -> PathBuf {
            self.place.path().join("rings/namespaces")
        }

        /// The file's content after these steps.
        fn after(&mut self, steps: impl IntoIterator<Item = Step>) -> Option<String> {
            for step in steps {
                self.enrolled.note(&step);
                self.enrolled.write(&self.sink).unwrap();
            }
            read_to_string(self.file()).ok()
        }
    }

    #[test]
    fn the_file_says_what_lists_and_changes_say() {
        let mut world = World::new();
        let listed = [("shop", Some("enabled")), ("web", Some("Enabled")), ("db", None), ("art", Some("enabled"))];
        let list = listed.map(|(name, label)| Step::Listed(item(name, label)));
        assert_eq!(world.after([Step::Begin].into_iter().chain(list)), None, "the list is not complete");
        assert_eq!(world.after([Step::End]).unwrap(), "art\nshop\n");
        assert_eq!(world.after([Step::Put(item("web", Some("enabled")))]).unwrap(), "art\nshop\nweb\n");
        assert_eq!(world.after([Step::Put(item("shop", Some("disabled")))]).unwrap(), "art\nweb\n");
        assert_eq!(world.after([Step::Put(invalid("web")), Step::Put(invalid("new"))]).unwrap(), "art\nweb\n");
        assert_eq!(world.after([Step::Gone(Key::Namespace("art".into()))]).unwrap(), "web\n");
        let away = [Step::Failed("x".into()), Step::Refused("x".into()), Step::Begin, Step::Failed("x".into())];
        assert_eq!(world.after(away).unwrap(), "web\n", "the server is away");
        let again = [Step::Begin, Step::Listed(invalid("web")), Step::End];
        assert_eq!(world.after(again).unwrap(), "web\n", "an object that cannot be read");
        assert_eq!(world.after([Step::Begin, Step::End]).unwrap(), "");
    }

    #[test]
    fn the_file_is_written_only_when_it_changes() {
        let mut world = World::new();
        std::fs::create_dir(world.place.path().join("rings")).unwrap();
        write(world.file(), "shop\n").unwrap();
        let before = world.file().metadata().unwrap().ino();
        let list = || [Step::Begin, Step::Listed(item("shop", Some("enabled"))), Step::End];
        assert_eq!(world.after(list().into_iter().chain(list())).unwrap(), "shop\n");
        assert_eq!(world.file().metadata().unwrap().ino(), before);
    }

    #[test]
    fn a_name_is_one_line_and_no_comment() {
        let mut world = World::new();
        let odd = ["a\nb", "#", "", "..", &"a".repeat(64)].map(|name| Step::Put(item(name, Some("enabled"))));
        let steps = [Step::Begin, Step::End].into_iter().chain(odd);
        assert_eq!(world.after(steps).unwrap(), "");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_a_trouble_until_it_can() {
        let mut world = World::new();
        write(world.place.path().join("rings"), "no directory").unwrap();
        assert_eq!(world.after([Step::Begin, Step::Listed(item("shop", Some("enabled"))), Step::End]), None);
        std::fs::remove_file(world.place.path().join("rings")).unwrap();
        world.enrolled.write(&world.sink).unwrap();
        assert_eq!(read_to_string(world.file()).unwrap(), "shop\n");
        let told: Vec<Message> = world.told.try_iter().collect();
        assert!(
            matches!(&told[..], [Message::Update(_, Update::Trouble(trouble)), Message::Update(_, Update::Well(_))]
            if !trouble.hides_objects && trouble.what.contains("stays as it is"))
        );
    }
}
