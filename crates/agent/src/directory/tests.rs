use super::files::MOST_BYTES;
use super::*;
use crate::message::Message;
use sidestep_mesh::state::Change;
use std::fs::{self, File};
use std::io::Write;

const PATIENCE: Duration = Duration::from_secs(10);

/// Receives updates; skips nothing.
struct Heard(Receiver<Message>);

impl Heard {
    fn next(&self) -> Update {
        match self.0.recv_timeout(PATIENCE).expect("an update arrives") {
            Message::Update(0, told) => told,
            _ => panic!("only sources talk here"),
        }
    }

    /// The next update that is not Well.
    fn news(&self) -> Update {
        std::iter::repeat_with(|| self.next()).find(|told| !matches!(told, Update::Well(_))).expect("not closed")
    }
}

fn watch(path: &Path) -> Heard {
    watch_as(Directory::new(path.into()))
}

fn watch_as(directory: Directory) -> Heard {
    let (inbox, heard): (Sender<Message>, _) = channel();
    let source = Box::new(directory);
    std::thread::spawn(move || source.run(&EventSink::new(inbox, 0)));
    Heard(heard)
}

fn service(name: &str, ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
         spec: {{clusterIP: {ip}, ports: [{{port: 80}}]}}\n---\n"
    )
}

fn put(told: Update) -> String {
    match told {
        Update::Changes(changes) => match changes.as_slice() {
            [Change::Put(Object::Service(service))] => {
                format!("{} {}", service.name.name, service.cluster_ips[0])
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn deleted(told: Update) -> String {
    match told {
        Update::Changes(changes) => match changes.as_slice() {
            [Change::Delete(key)] => key.to_string(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn trouble(told: Update) -> String {
    match told {
        Update::Trouble(trouble) => format!("{}: {}", trouble.place, trouble.what),
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
    assert_eq!(heard.news(), Update::Listed);
    fs::write(&file, service("web", "10.0.0.2")).unwrap();
    assert_eq!(put(heard.news()), "web 10.0.0.2");
    // Renamed into its place, as editors do.
    let aside = directory.path().join(".a.yaml.new");
    fs::write(&aside, service("web", "10.0.0.3")).unwrap();
    fs::rename(&aside, &file).unwrap();
    assert_eq!(put(heard.news()), "web 10.0.0.3");
    fs::remove_file(&file).unwrap();
    assert_eq!(deleted(heard.news()), "Service default/web");
}

/// For changes that inotify(7) does not report, such as a mount over a file.
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
    assert_eq!(heard.news(), Update::Listed);
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
    assert_eq!(heard.news(), Update::Listed);
    // A valid file becomes invalid: no change follows, and the next update comes from the next event.
    fs::write(&good, "apiVersion: v1\nkind: Service\nmetadata: {nome: web}\n").unwrap();
    let said = trouble(heard.news());
    assert!(said.contains("good.yaml: document 1: metadata.nome: no such field"), "{said}");
    fs::write(&bad, service("db", "10.0.0.4")).unwrap();
    // The change comes first: with the end of the last problem nothing is hidden any more.
    assert_eq!(put(heard.next()), "db 10.0.0.4");
    assert_eq!(heard.next(), Update::Well(bad.display().to_string()));
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
    assert_eq!(heard.news(), Update::Listed);
    fs::write(&file, "{apiVersion: sidestep.dev/v1, kind: Capture, metadata: {name: a}, spec: {netns: a}}").unwrap();
    assert!(matches!(heard.news(), Update::Changes(changes) if changes.len() == 1));
}

#[test]
fn of_two_files_that_name_one_object_the_first_counts() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("a.yaml"), directory.path().join("b.yaml"));
    fs::write(&second, service("web", "10.0.0.2")).unwrap();
    let heard = watch(directory.path());
    assert_eq!(put(heard.news()), "web 10.0.0.2");
    assert_eq!(heard.news(), Update::Listed);
    fs::write(&first, service("web", "10.0.0.1")).unwrap();
    assert_eq!(put(heard.news()), "web 10.0.0.1");
    let said = trouble(heard.news());
    assert!(said.contains("a.yaml: Service default/web is also in") && said.contains("b.yaml"), "{said}");
    // The first file still counts, and the problem is over when the second one is removed.
    fs::remove_file(&second).unwrap();
    assert_eq!(put(heard.news()), "web 10.0.0.1");
    assert_eq!(heard.next(), Update::Well(second.display().to_string()));
    assert_eq!(heard.next(), Update::Well(first.display().to_string()));
}

#[test]
fn an_object_that_moves_to_another_file_is_never_gone() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("b.yaml"), service("web", "10.0.0.1")).unwrap();
    let heard = watch(directory.path());
    assert_eq!(put(heard.news()), "web 10.0.0.1");
    assert_eq!(heard.news(), Update::Listed);
    for (from, to) in [("b.yaml", "a.yaml"), ("a.yaml", "c.yaml")] {
        fs::rename(at(from), at(to)).unwrap();
        assert_eq!(put(heard.news()), "web 10.0.0.1");
    }
}

/// Events of other files do not make a file that is being written readable early.
#[test]
fn a_foreign_file_tells_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("z.yaml"), service("web", "10.0.0.1")).unwrap();
    let heard = watch(directory.path());
    assert_eq!(put(heard.news()), "web 10.0.0.1");
    assert_eq!(heard.news(), Update::Listed);
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
    assert_eq!(heard.news(), Update::Listed);
    fs::rename(at("bad.yaml"), at("bad.yaml.off")).unwrap();
    assert_eq!(heard.next(), Update::Well(at("bad.yaml").display().to_string()));
    // Also if the file was removed while the directory was not watched.
    fs::write(at("bad.yaml"), "kind: Nonsense").unwrap();
    assert!(trouble(heard.news()).contains("bad.yaml: document 1: "));
    let mut alone = Directory::new(directory.path().into());
    let (inbox, heard) = channel();
    let sink = EventSink::new(inbox, 0);
    let all = alone.all(&sink).unwrap().unwrap();
    alone.read(all, &sink).unwrap();
    fs::remove_file(at("bad.yaml")).unwrap();
    assert!(alone.all(&sink).unwrap().unwrap().contains(&at("bad.yaml")));
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
    assert_eq!(heard.news(), Update::Listed);
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
    assert_eq!(heard.news(), Update::Listed);
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
    assert_eq!(heard.news(), Update::Listed);
    fs::remove_dir(&directory).unwrap();
    let said = trouble(heard.news());
    assert!(said.contains("services: "), "{said}");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("a.yaml"), service("web", "10.0.0.1")).unwrap();
    let mut told = std::iter::repeat_with(|| heard.news()).skip_while(|told| matches!(told, Update::Trouble(_)));
    assert_eq!(put(told.next().expect("it goes on")), "web 10.0.0.1");
}
