//! Services, captured pods and policies, from the YAML files of a directory, as they change.
//!
//! A file is read when its writer has closed it, or when it has been renamed into its place: never half-written. A file
//! that cannot be read keeps what it held before. Whatever else lies in the directory is not ours, and tells nothing.

mod files;
mod touched;

use crate::message::{Gone, Refresher, Source, Teller, Told};
use files::Files;
use notify::event::Flag;
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
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
    /// Services are another source's.
    only_captures: bool,
    files: Files,
    /// Files that name an object which another one names, too.
    doubled: BTreeSet<PathBuf>,
    /// Files that could not be read, there or gone.
    troubled: BTreeSet<PathBuf>,
    events: Arc<Mutex<Option<Events>>>,
}

/// While the directory is watched: what it is told by.
type Events = Sender<notify::Result<Event>>;

/// A file that is renamed is gone for a moment.
const RENAMED: Duration = Duration::from_millis(2);
/// After the directory has gone it is looked for so often.
const AGAIN: Duration = Duration::from_secs(1);
impl Source for Directory {
    fn name(&self) -> String {
        format!("directory {}", self.path.display())
    }

    fn refresher(&self) -> Refresher {
        let events = Arc::clone(&self.events);
        Box::new(move || {
            // While it is not watched, it is looked for anyway. Events that were lost are a reason to read everything.
            if let Some(events) = &*events.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = events.send(Ok(Event::default().set_flag(Flag::Rescan)));
            }
        })
    }

    fn run(mut self: Box<Self>, teller: &Teller) -> Result<(), Gone> {
        loop {
            match self.watch() {
                Ok((watcher, events)) => {
                    teller.well(self.path.display())?;
                    self.follow(&events, teller)?;
                    drop(watcher);
                }
                Err(why) => teller.trouble(self.path.display(), why)?,
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

    /// One in which nothing else belongs.
    pub fn of_captures(path: PathBuf) -> Directory {
        Directory { only_captures: true, ..Directory::new(path) }
    }

    fn objects(&self, path: &Path) -> Result<BTreeMap<Key, Object>, String> {
        let objects = files::objects(path)?;
        match objects.keys().find(|key| self.only_captures && !matches!(key, Key::Capture(_) | Key::Policy(_))) {
            Some(other) => Err(format!("{other}: only objects of kind Capture and Policy are read here")),
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

    /// Reads everything, and then what changes; until the directory has gone.
    fn follow(&mut self, events: &Receiver<notify::Result<Event>>, teller: &Teller) -> Result<(), Gone> {
        let Some(all) = self.all(teller)? else { return Ok(()) };
        self.read(all, teller)?;
        teller.tell(Told::Listed)?;
        while let Ok(first) = events.recv() {
            let mut touched = Touched::default();
            touched.add(&first, &self.path);
            if touched.has_lost_a_file() {
                // It may be about to appear under another name.
                std::thread::sleep(RENAMED);
            }
            while let Ok(next) = events.try_recv() {
                touched.add(&next, &self.path);
            }
            let files = if touched.everything {
                let Some(all) = self.all(teller)? else { return Ok(()) };
                all.union(&touched.files).cloned().collect()
            } else {
                touched.files
            };
            if !files.is_empty() {
                self.read(files, teller)?;
            }
        }
        Ok(())
    }

    /// The files that are there and those that were. None: the directory cannot be read.
    fn all(&self, teller: &Teller) -> Result<Option<BTreeSet<PathBuf>>, Gone> {
        let listed = std::fs::read_dir(&self.path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        match listed {
            Ok(entries) => {
                let there = entries.into_iter().map(|entry| entry.path()).filter(|path| is_ours(path));
                let before = self.files.paths().chain(&self.troubled).cloned();
                Ok(Some(there.chain(before).collect()))
            }
            Err(error) => {
                teller.trouble(self.path.display(), format!("cannot list it: {error}"))?;
                Ok(None)
            }
        }
    }

    fn read(&mut self, files: BTreeSet<PathBuf>, teller: &Teller) -> Result<(), Gone> {
        let (mut changed, mut understood) = (BTreeSet::new(), BTreeSet::new());
        for path in files {
            match self.objects(&path) {
                Ok(objects) => {
                    self.troubled.remove(&path);
                    changed.extend(self.files.replace(path.clone(), objects));
                    understood.insert(path);
                }
                Err(what) => {
                    teller.trouble(path.display(), what)?;
                    self.troubled.insert(path);
                }
            }
        }
        if !changed.is_empty() {
            teller.tell(Told::Changes(changed.into_iter().map(|key| self.files.change(key)).collect()))?;
        }
        // Not before what they hold is known: what an earlier agent left besides goes as soon as nothing is hidden.
        understood.iter().try_for_each(|path| teller.well(path.display()))?;
        self.complain(understood, teller)
    }

    /// About objects of these files that another one names, too; and no more about those of which that is over.
    fn complain(&mut self, files: BTreeSet<PathBuf>, teller: &Teller) -> Result<(), Gone> {
        let before = std::mem::take(&mut self.doubled);
        for path in before.union(&files) {
            let doubles = self.files.doubles(path);
            if !doubles.is_empty() {
                teller.trouble(path.display(), doubles.join("; "))?;
                self.doubled.insert(path.clone());
            } else if before.contains(path) {
                teller.well(path.display())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::files::MOST_BYTES;
    use super::*;
    use crate::message::Message;
    use sidestep_mesh::state::Change;
    use std::fs::{self, File};
    use std::io::Write;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// What is told, until Listed or a change comes.
    struct Heard(Receiver<Message>);

    impl Heard {
        fn next(&self) -> Told {
            match self.0.recv_timeout(PATIENCE).expect("something is told") {
                Message::Told(0, told) => told,
                _ => panic!("only sources talk here"),
            }
        }

        /// Until something else than "well" is told.
        fn news(&self) -> Told {
            std::iter::repeat_with(|| self.next()).find(|told| !matches!(told, Told::Well(_))).expect("it goes on")
        }
    }

    fn watch(path: &Path) -> Heard {
        watch_as(Directory::new(path.into()))
    }

    fn watch_as(directory: Directory) -> Heard {
        let (inbox, heard): (Sender<Message>, _) = channel();
        let source = Box::new(directory);
        std::thread::spawn(move || source.run(&Teller::new(inbox, 0)));
        Heard(heard)
    }

    fn service(name: &str, ip: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
             spec: {{clusterIP: {ip}, ports: [{{port: 80}}]}}\n---\n"
        )
    }

    fn put(told: Told) -> String {
        match told {
            Told::Changes(changes) => match changes.as_slice() {
                [Change::Put(Object::Service(service))] => {
                    format!("{} {}", service.name.name, service.cluster_ips[0])
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn deleted(told: Told) -> String {
        match told {
            Told::Changes(changes) => match changes.as_slice() {
                [Change::Delete(key)] => key.to_string(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn trouble(told: Told) -> String {
        match told {
            Told::Trouble(trouble) => format!("{}: {}", trouble.place, trouble.what),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_are_told_as_they_change() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.yaml");
        fs::write(&file, service("web", "10.0.0.1")).unwrap();
        fs::write(directory.path().join("notes.txt"), "nothing of ours").unwrap();
        let heard = watch(directory.path());
        assert_eq!(put(heard.news()), "web 10.0.0.1");
        assert_eq!(heard.news(), Told::Listed);
        fs::write(&file, service("web", "10.0.0.2")).unwrap();
        assert_eq!(put(heard.news()), "web 10.0.0.2");
        // Renamed into its place, as careful writers do.
        let aside = directory.path().join(".a.yaml.new");
        fs::write(&aside, service("web", "10.0.0.3")).unwrap();
        fs::rename(&aside, &file).unwrap();
        assert_eq!(put(heard.news()), "web 10.0.0.3");
        fs::remove_file(&file).unwrap();
        assert_eq!(deleted(heard.news()), "Service default/web");
    }

    /// For what inotify(7) does not tell, such as a file of a mount that comes to lie there.
    #[test]
    fn everything_is_read_again_if_somebody_wants_it() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("a.yaml");
        fs::write(&target, service("web", "10.0.0.1")).unwrap();
        std::os::unix::fs::symlink(&target, directory.path().join("a.yaml")).unwrap();
        let source = Directory::new(directory.path().into());
        let refresh = source.refresher();
        let heard = watch_as(source);
        assert_eq!(put(heard.news()), "web 10.0.0.1");
        assert_eq!(heard.news(), Told::Listed);
        fs::write(&target, service("web", "10.0.0.2")).unwrap();
        assert!(heard.0.recv_timeout(Duration::from_millis(200)).is_err(), "nobody tells of the link's target");
        refresh();
        assert_eq!(put(heard.news()), "web 10.0.0.2");
    }

    #[test]
    fn a_bad_file_is_named_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (good, bad) = (directory.path().join("good.yaml"), directory.path().join("bad.yaml"));
        fs::write(&good, service("web", "10.0.0.1")).unwrap();
        fs::write(&bad, service("db", "10.0.0.300")).unwrap();
        let heard = watch(directory.path());
        let said = trouble(heard.news());
        assert!(said.contains("bad.yaml: document 1: spec.clusterIPs[0]: \"10.0.0.300\" where an IP"), "{said}");
        assert_eq!(put(heard.news()), "web 10.0.0.1");
        assert_eq!(heard.news(), Told::Listed);
        // A good file that becomes bad: no change follows, and the next thing told is of the next event.
        fs::write(&good, "apiVersion: v1\nkind: Service\nmetadata: {nome: web}\n").unwrap();
        let said = trouble(heard.news());
        assert!(said.contains("good.yaml: document 1: metadata.nome: no such field"), "{said}");
        fs::write(&bad, service("db", "10.0.0.4")).unwrap();
        // In this order: with the last trouble goes what hid objects.
        assert_eq!(put(heard.next()), "db 10.0.0.4");
        assert_eq!(heard.next(), Told::Well(bad.display().to_string()));
    }

    #[test]
    fn where_captures_are_read_services_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.yaml");
        fs::write(&file, service("web", "10.0.0.1")).unwrap();
        let heard = watch_as(Directory::of_captures(directory.path().into()));
        let said = trouble(heard.news());
        assert!(
            said.ends_with("a.yaml: Service default/web: only objects of kind Capture and Policy are read here"),
            "{said}"
        );
        assert_eq!(heard.news(), Told::Listed);
        fs::write(&file, "{apiVersion: sidestep.dev/v1, kind: Capture, metadata: {name: a}, spec: {netns: a}}")
            .unwrap();
        assert!(matches!(heard.news(), Told::Changes(changes) if changes.len() == 1));
    }

    #[test]
    fn of_two_files_that_name_one_object_the_first_counts() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("a.yaml"), directory.path().join("b.yaml"));
        fs::write(&second, service("web", "10.0.0.2")).unwrap();
        let heard = watch(directory.path());
        assert_eq!(put(heard.news()), "web 10.0.0.2");
        assert_eq!(heard.news(), Told::Listed);
        fs::write(&first, service("web", "10.0.0.1")).unwrap();
        assert_eq!(put(heard.news()), "web 10.0.0.1");
        let said = trouble(heard.news());
        assert!(said.contains("a.yaml: Service default/web is also in") && said.contains("b.yaml"), "{said}");
        // The first still counts, and the complaint about it is over with the second.
        fs::remove_file(&second).unwrap();
        assert_eq!(put(heard.news()), "web 10.0.0.1");
        assert_eq!(heard.next(), Told::Well(second.display().to_string()));
        assert_eq!(heard.next(), Told::Well(first.display().to_string()));
    }

    #[test]
    fn an_object_that_moves_to_another_file_is_never_gone() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("b.yaml"), service("web", "10.0.0.1")).unwrap();
        let heard = watch(directory.path());
        assert_eq!(put(heard.news()), "web 10.0.0.1");
        assert_eq!(heard.news(), Told::Listed);
        for (from, to) in [("b.yaml", "a.yaml"), ("a.yaml", "c.yaml")] {
            fs::rename(at(from), at(to)).unwrap();
            assert_eq!(put(heard.news()), "web 10.0.0.1");
        }
    }

    /// A file that is being written is told when it is whole, whatever happens beside it.
    #[test]
    fn a_foreign_file_tells_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("z.yaml"), service("web", "10.0.0.1")).unwrap();
        let heard = watch(directory.path());
        assert_eq!(put(heard.news()), "web 10.0.0.1");
        assert_eq!(heard.news(), Told::Listed);
        let mut half = File::create(at("z.yaml")).unwrap();
        fs::write(at("notes.txt"), "nothing of ours").unwrap();
        fs::write(at("other.yaml"), service("other", "10.0.0.9")).unwrap();
        assert_eq!(put(heard.news()), "other 10.0.0.9");
        half.write_all(service("web", "10.0.0.2").as_bytes()).unwrap();
        drop(half);
        assert_eq!(put(heard.news()), "web 10.0.0.2");
    }

    #[test]
    fn a_bad_file_that_is_taken_away_is_no_trouble_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("bad.yaml"), "kind: Nonsense").unwrap();
        let heard = watch(directory.path());
        assert!(trouble(heard.news()).contains("bad.yaml: document 1: "));
        assert_eq!(heard.news(), Told::Listed);
        fs::rename(at("bad.yaml"), at("bad.yaml.off")).unwrap();
        assert_eq!(heard.next(), Told::Well(at("bad.yaml").display().to_string()));
        // Also if nobody looked when it went.
        fs::write(at("bad.yaml"), "kind: Nonsense").unwrap();
        assert!(trouble(heard.news()).contains("bad.yaml: document 1: "));
        let mut alone = Directory::new(directory.path().into());
        let (inbox, heard) = channel();
        let teller = Teller::new(inbox, 0);
        let all = alone.all(&teller).unwrap().unwrap();
        alone.read(all, &teller).unwrap();
        fs::remove_file(at("bad.yaml")).unwrap();
        assert!(alone.all(&teller).unwrap().unwrap().contains(&at("bad.yaml")));
        drop(heard);
    }

    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, at("a.yaml"), fifo, mode, 0).unwrap();
        std::os::unix::fs::symlink("a.yaml", at("b.yaml")).unwrap();
        File::create(at("c.yaml")).unwrap().set_len(MOST_BYTES + 1).unwrap();
        fs::write(at("d.yaml"), service("web", "10.0.0.1")).unwrap();
        let heard = watch(directory.path());
        for expected in [
            "a.yaml: cannot read it: not a regular file",
            "b.yaml: cannot read it: not a regular file",
            "c.yaml: cannot read it: more than 64 MiB",
        ] {
            let said = trouble(heard.news());
            assert!(said.ends_with(expected), "{said}");
        }
        assert_eq!(put(heard.news()), "web 10.0.0.1");
        assert_eq!(heard.news(), Told::Listed);
    }

    #[test]
    fn a_volume_that_exchanges_a_link_is_read_anew() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (version, ip) in [("..1", "10.0.0.1"), ("..2", "10.0.0.2")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("a.yaml"), service("web", ip)).unwrap();
        }
        std::os::unix::fs::symlink("..1", at("..data")).unwrap();
        std::os::unix::fs::symlink("..data/a.yaml", at("a.yaml")).unwrap();
        let heard = watch(directory.path());
        assert_eq!(put(heard.news()), "web 10.0.0.1");
        assert_eq!(heard.news(), Told::Listed);
        std::os::unix::fs::symlink("..2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        let told = std::iter::repeat_with(|| put(heard.news())).find(|told| told == "web 10.0.0.2");
        assert_eq!(told.as_deref(), Some("web 10.0.0.2"));
    }

    #[test]
    fn a_directory_that_goes_and_comes_back_is_followed_again() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("services");
        fs::create_dir(&directory).unwrap();
        let heard = watch(&directory);
        assert_eq!(heard.news(), Told::Listed);
        fs::remove_dir(&directory).unwrap();
        let said = trouble(heard.news());
        assert!(said.contains("services: "), "{said}");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("a.yaml"), service("web", "10.0.0.1")).unwrap();
        let mut told = std::iter::repeat_with(|| heard.news()).skip_while(|told| matches!(told, Told::Trouble(_)));
        assert_eq!(put(told.next().expect("it goes on")), "web 10.0.0.1");
    }
}
