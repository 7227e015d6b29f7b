//! The register of admitted pods: one file for each, in the format of kind Capture, so that the directory is a source like the
//! one of an operator, and the next agent knows them.

use super::document::{self, ATTACHMENT};
use super::error::{AdmissionError, LedgerError};
use rustix::fs::{OFlags, fstatfs};
use serde::Deserialize;
use sidestep_agent_api::Attachment;
use sidestep_error::chain;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// An admitted pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The attachment by which it was admitted. Further interfaces of the container change nothing.
    pub attachment: Attachment,
    pub pod: Name,
    /// None: an earlier agent did not write it.
    pub uid: Option<Arc<str>>,
    pub netns: PathBuf,
    /// When its admission was asked for. None: an earlier agent was asked.
    pub asked: Option<Instant>,
}

impl Record {
    /// The UID, if both have one and they differ.
    fn uid_unlike(&self, other: &Record) -> Option<&str> {
        let (own, its) = (self.uid.as_deref()?, other.uid.as_deref()?);
        (own != its).then_some(own)
    }
}

/// The register of admitted pods.
pub struct Ledger {
    directory: PathBuf,
    /// By the container's name, which is the file's.
    records: BTreeMap<String, Record>,
}

/// More than the labels and annotations of any pod, which are as long as an object of the API server may be, 1.5 MiB as a rule. As text
/// they are longer: characters are escaped, and each label has a line. A file that is longer is not the ledger's.
const LONGEST: u64 = 32 << 20;
const ENDING: &str = "json";
const MODE: u32 = 0o600;
/// `f_type` in statfs(2).
const NSFS_MAGIC: u64 = 0x6e73_6673;

impl Ledger {
    /// Reads what an earlier agent has admitted, and forgets the pods of it that have ended.
    pub fn open(directory: &Path) -> Result<Ledger, LedgerError> {
        let cannot = |source| LedgerError::Directory { path: directory.into(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(cannot)?;
        let mut ledger = Ledger { directory: directory.into(), records: BTreeMap::new() };
        for entry in std::fs::read_dir(directory).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if let Some(container) = container_of(&path) {
                match record(&path) {
                    Ok(record) => drop(ledger.records.insert(container, record)),
                    Err(error) => tracing::warn!("{}: not an admitted pod: {}", path.display(), chain(&error)),
                }
            }
        }
        ledger.forget_ended();
        Ok(ledger)
    }

    pub fn get(&self, container: &str) -> Option<&Record> {
        self.records.get(container)
    }

    pub fn has_pod(&self, name: &Name) -> bool {
        self.records.values().any(|record| record.pod == *name)
    }

    /// The document of an admitted pod.
    pub fn capture(&self, container: &str) -> Result<Capture, AdmissionError> {
        document::read(&text(&self.path(container))?)
    }

    /// Writes the pod's file. A sandbox that the pod had before is forgotten, and so is an earlier pod of its name that has ended.
    pub fn put(&mut self, record: Record, text: &str) -> Result<(), LedgerError> {
        let container = record.attachment.container.clone();
        self.check_namesakes(&record)?;
        let is_older = |(other, known): (&String, &Record)| {
            (*other != container && known.pod == record.pod).then(|| other.clone())
        };
        let older: Vec<String> = self.records.iter().filter_map(is_older).collect();
        older.iter().try_for_each(|other| self.remove(other))?;
        let path = self.path(&container);
        sidestep_files::write(&path, MODE, text.as_bytes()).map_err(|source| LedgerError::Write { path, source })?;
        self.records.insert(container, record);
        Ok(())
    }

    /// A pod that was deleted by force may run on for a while. Its capture and its policies are in force under its name: they have
    /// to last as long as it does. Nor may a request that has been overtaken take the place of a later one of the pod: its sandbox is
    /// given up already.
    fn check_namesakes(&self, record: &Record) -> Result<(), LedgerError> {
        let namesakes = self.records.values().filter(|known| known.pod == record.pod);
        for known in namesakes {
            if known.asked > record.asked && known.netns != record.netns && is_namespace(&known.netns) {
                return Err(LedgerError::Overtaken { netns: known.netns.clone() });
            }
            if let Some(uid) = known.uid_unlike(record).filter(|_| is_namespace(&known.netns)) {
                return Err(LedgerError::Namesake { uid: uid.into(), netns: known.netns.clone() });
            }
        }
        Ok(())
    }

    /// Forgets the container. One that is not known is no error.
    pub fn remove(&mut self, container: &str) -> Result<(), LedgerError> {
        let path = self.path(container);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LedgerError::Remove { path, source: error });
            }
            _ => {}
        }
        self.records.remove(container);
        Ok(())
    }

    /// Forgets the network's pods that are not valid any more, and returns how many.
    pub fn keep(&mut self, network: &str, valid: &[Attachment]) -> Result<usize, LedgerError> {
        let is_gone = |record: &Record| record.attachment.network == network && !valid.contains(&record.attachment);
        self.forget(is_gone)
    }

    /// Forgets the pods whose network namespaces have ended, since the runtime may not have been able to say so.
    pub fn forget_ended(&mut self) {
        match self.forget(|record| !is_namespace(&record.netns)) {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "admitted pods have ended without the CNI plugin's saying so"),
            Err(error) => tracing::warn!("pods that have ended are still admitted: {}", chain(&error)),
        }
    }

    fn forget(&mut self, is_gone: impl Fn(&Record) -> bool) -> Result<usize, LedgerError> {
        let gone: Vec<String> =
            self.records.iter().filter(|(_, record)| is_gone(record)).map(|(container, _)| container.clone()).collect();
        gone.iter().try_for_each(|container| self.remove(container))?;
        Ok(gone.len())
    }

    fn path(&self, container: &str) -> PathBuf {
        self.directory.join(format!("{container}.{ENDING}"))
    }
}

fn container_of(path: &Path) -> Option<String> {
    let is_ours = path.extension().is_some_and(|ending| ending == ENDING);
    let name = path.file_stem()?.to_str()?;
    (is_ours && !name.starts_with('.')).then(|| name.to_string())
}

/// An unreadable file counts as one: what is not certainly gone stays.
fn is_namespace(path: &Path) -> bool {
    match File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path) {
        Ok(file) => fstatfs(&file).map_or(true, |found| found.f_type as u64 == NSFS_MAGIC),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

#[derive(Debug, thiserror::Error)]
enum NotAdmitted {
    #[error(transparent)]
    Read(#[from] LedgerError),
    #[error(transparent)]
    Document(#[from] AdmissionError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("{ATTACHMENT} does not have the form NETWORK/CONTAINER/INTERFACE")]
    Attachment,
    #[error("{ATTACHMENT} names container {container}, but the file is named after another one")]
    Container { container: String },
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

fn record(path: &Path) -> Result<Record, NotAdmitted> {
    let text = text(path)?;
    let capture = document::read(&text)?;
    let head: Head = serde_json::from_str(&text)?;
    let attachment = head.metadata.annotations.get(ATTACHMENT).map_or("", String::as_str);
    let [network, container, interface] = attachment.split('/').collect::<Vec<_>>()[..] else {
        return Err(NotAdmitted::Attachment);
    };
    if container_of(path).as_deref() != Some(container) {
        return Err(NotAdmitted::Container { container: container.into() });
    }
    let attachment = Attachment { network: network.into(), container: container.into(), interface: interface.into() };
    Ok(Record { attachment, pod: capture.name, uid: capture.uid, netns: capture.netns.path(), asked: None })
}

fn text(path: &Path) -> Result<String, LedgerError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    read.map_err(|source| LedgerError::Read { path: path.into(), source })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn record(container: &str, pod: &str, netns: &str) -> Record {
        let attachment = Attachment { network: "net".into(), container: container.into(), interface: "eth0".into() };
        Record { attachment, pod: Name::new("default", pod), uid: None, netns: netns.into(), asked: None }
    }

    fn with_uid(uid: &str, of: Record) -> Record {
        Record { uid: Some(uid.into()), ..of }
    }

    fn file(of: &Record) -> String {
        let Attachment { network, container, interface } = &of.attachment;
        let annotations = json!({ATTACHMENT: format!("{network}/{container}/{interface}")});
        let (name, namespace) = (&*of.pod.name, &*of.pod.namespace);
        json!({
            "apiVersion": "sidestep.dev/v1", "kind": "Capture",
            "metadata": {"name": name, "namespace": namespace, "uid": of.uid.as_deref(), "annotations": annotations},
            "spec": {"netns": of.netns},
        })
        .to_string()
    }

    /// A name of a namespace that lives, until the name is removed.
    fn namespace_in(directory: &Path) -> PathBuf {
        let name = directory.join("netns");
        std::os::unix::fs::symlink(ALIVE, &name).unwrap();
        name
    }

    #[test]
    fn a_new_agent_knows_a_pod_with_as_many_labels_as_an_object_can_have() {
        let directory = tempfile::tempdir().unwrap();
        let one = record("c1", "a", ALIVE);
        let mut whole: serde_json::Value = serde_json::from_str(&file(&one)).unwrap();
        let labels: BTreeMap<String, &str> = (0..16_000).map(|n| (format!("{n:060}"), "x")).collect();
        whole["metadata"]["labels"] = json!(labels);
        let text = format!("{whole:#}");
        assert!(text.len() > 1 << 20, "{}", text.len());
        Ledger::open(directory.path()).unwrap().put(one.clone(), &text).unwrap();
        let mut next = Ledger::open(directory.path()).unwrap();
        assert_eq!(next.get("c1"), Some(&one));
        assert!(next.capture("c1").is_ok());
        next.remove("c1").unwrap();
        assert!(names(directory.path()).is_empty());
    }

    /// The reading of the first sandbox's object took longer than that of the next one's.
    #[test]
    fn a_request_that_was_overtaken_does_not_take_the_place_of_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path()).unwrap();
        let asked = |seconds| Some(Instant::now() + Duration::from_secs(seconds));
        let later_netns = namespace_in(directory.path());
        let first = Record { asked: asked(0), ..record("c1", "a", ALIVE) };
        let later = Record { asked: asked(1), ..record("c2", "a", later_netns.to_str().unwrap()) };
        ledger.put(later.clone(), &file(&later)).unwrap();
        assert!(matches!(ledger.put(first.clone(), &file(&first)), Err(LedgerError::Overtaken { .. })));
        assert_eq!((ledger.get("c1"), ledger.get("c2")), (None, Some(&later)));
        std::fs::remove_file(later_netns).unwrap();
        ledger.put(first.clone(), &file(&first)).unwrap();
        assert_eq!((ledger.get("c1"), ledger.get("c2")), (Some(&first), None), "it has ended");
    }

    /// A namespace that lives as long as the test.
    const ALIVE: &str = "/proc/self/ns/net";

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_agent_knows_the_pods_that_live() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = Ledger::open(directory.path()).unwrap();
        let (one, ended) = (record("c1", "a", ALIVE), record("c2", "b", "/run/netns/no-such-namespace"));
        for each in [&one, &ended] {
            first.put(each.clone(), &file(each)).unwrap();
        }
        std::fs::write(directory.path().join("broken.json"), "{").unwrap();
        let second = Ledger::open(directory.path()).unwrap();
        assert_eq!((second.get("c1"), second.get("c2")), (Some(&one), None));
        assert_eq!(second.capture("c1").unwrap().name, one.pod);
        assert_eq!(names(directory.path()), ["broken.json", "c1.json"], "a file that is not understood stays");
    }

    #[test]
    fn a_pods_new_sandbox_replaces_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path()).unwrap();
        for each in [record("old", "a", ALIVE), record("other", "b", ALIVE), record("new", "a", ALIVE)] {
            ledger.put(each.clone(), &file(&each)).unwrap();
        }
        assert_eq!(names(directory.path()), ["new.json", "other.json"]);
        // The old sandbox's end comes late.
        ledger.remove("old").unwrap();
        assert!(ledger.get("new").is_some());
    }

    #[test]
    fn a_pod_whose_namesake_still_runs_has_to_wait_for_its_end() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let netns = namespace_in(elsewhere.path());
        let first = with_uid("u1", record("c1", "a", netns.to_str().unwrap()));
        let second = with_uid("u2", record("c2", "a", ALIVE));
        Ledger::open(directory.path()).unwrap().put(first.clone(), &file(&first)).unwrap();
        // The next agent knows the UID, too.
        let mut ledger = Ledger::open(directory.path()).unwrap();
        let told = ledger.put(second.clone(), &file(&second)).unwrap_err().to_string();
        assert!(told.contains("UID u1") && told.contains("try again"), "{told}");
        // The runtime removes the sandbox that was refused.
        ledger.remove("c2").unwrap();
        assert_eq!((ledger.get("c1"), names(directory.path())), (Some(&first), vec!["c1.json".to_string()]));
        // Another sandbox of the first pod is no other pod.
        let again = with_uid("u1", record("c3", "a", netns.to_str().unwrap()));
        ledger.put(again.clone(), &file(&again)).unwrap();
        assert_eq!(names(directory.path()), ["c3.json"]);
        std::fs::remove_file(netns).unwrap();
        ledger.put(second.clone(), &file(&second)).unwrap();
        assert_eq!(names(directory.path()), ["c2.json"]);
        // The first pod's end is said late.
        ledger.remove("c3").unwrap();
        assert_eq!((ledger.get("c2"), names(directory.path())), (Some(&second), vec!["c2.json".to_string()]));
    }

    #[test]
    fn what_a_runtime_does_not_name_is_forgotten_in_its_network_only() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path()).unwrap();
        let mut elsewhere = record("c3", "c", ALIVE);
        elsewhere.attachment.network = "other".into();
        let [one, two] = [record("c1", "a", ALIVE), record("c2", "b", ALIVE)];
        for each in [&one, &two, &elsewhere] {
            ledger.put(each.clone(), &file(each)).unwrap();
        }
        assert_eq!(ledger.keep("net", std::slice::from_ref(&two.attachment)).unwrap(), 1);
        assert_eq!(names(directory.path()), ["c2.json", "c3.json"]);
    }

    #[test]
    fn a_file_of_another_container_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c9.json");
        std::fs::write(&path, file(&record("c1", "a", ALIVE))).unwrap();
        assert!(Ledger::open(directory.path()).unwrap().get("c9").is_none());
        let error = super::record(&path).unwrap_err();
        assert!(error.to_string().contains("names container c1, but the file is named after another one"), "{error}");
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(&directory.path().join("a/b")).unwrap();
        std::fs::remove_dir_all(directory.path().join("a")).unwrap();
        let one = record("c1", "a", ALIVE);
        let error = ledger.put(one.clone(), &file(&one)).unwrap_err();
        assert!(chain(&error).to_string().contains("c1.json: cannot write it: No such file"), "{}", chain(&error));
        assert!(ledger.get("c1").is_none());
        ledger.remove("c1").unwrap();
    }
}
