//! What becomes of containers, for operators: JSON lines on stderr, a file of events, metrics.

use crate::api::{Container, PodSandbox};
use crate::metrics::Metrics;
use jiff::Timestamp;
use serde::Serialize;
use sidestep_injection::{Outcome, Reason};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Most characters of a name that somebody else has chosen.
const LONGEST_NAME: usize = 256;
/// Most bytes of the file of events. A full one becomes FILE.1, in place of the one before.
const LARGEST_FILE: u64 = 1 << 20;
/// Lines that wait to be written; further ones are lost, and counted.
const WAITING: usize = 4096;

/// A container of an enrolled pod.
#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    namespace: String,
    pod: String,
    pod_uid: String,
    container: String,
}

impl Subject {
    /// A container of a pod.
    pub fn new(pod: &PodSandbox, container: &Container) -> Subject {
        let short = |name: &str| name.chars().take(LONGEST_NAME).collect();
        Subject {
            namespace: short(&pod.namespace),
            pod: short(&pod.name),
            pod_uid: short(&pod.uid),
            container: short(&container.name),
        }
    }
}

/// A line of the log, or of the file of events.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    level: &'static str,
    event: &'a str,
    #[serde(flatten)]
    subject: Option<&'a Subject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    message: &'a str,
}

/// Where reports go. Clones share it. A thread writes them, so that no request waits for a disk, or for whoever reads the log.
#[derive(Clone)]
pub struct Reporter {
    metrics: Metrics,
    lines: SyncSender<Written>,
}

/// A line for the thread.
struct Written {
    text: String,
    is_event: bool,
}

impl Reporter {
    /// `events`: the file to which a line is added for each container that does not use rings.
    pub fn new(metrics: Metrics, events: Option<&Path>) -> io::Result<Reporter> {
        let events = events.map(Events::open).transpose()?;
        let (lines, waiting) = sync_channel(WAITING);
        std::thread::Builder::new().name("reporter".into()).spawn(move || write(&waiting, events))?;
        Ok(Reporter { metrics, lines })
    }

    /// What has become of a container.
    pub fn container(&self, subject: &Subject, outcome: Outcome) {
        self.metrics.count(outcome);
        let reason = outcome.reason();
        let message = reason.map_or("The container gets the library", Reason::sentence);
        let reason = reason.map(Reason::name);
        let line = Line { time: now(), level: "info", event: outcome.name(), subject: Some(subject), reason, message };
        self.write(&line, reason.is_some());
    }

    /// Something about the plugin itself.
    pub fn note(&self, event: &str, message: &str) {
        self.plain("info", event, message);
    }

    /// Something about the plugin itself that somebody should look at.
    pub fn warning(&self, event: &str, message: &str) {
        self.plain("warning", event, message);
    }

    fn plain(&self, level: &'static str, event: &str, message: &str) {
        self.write(&Line { time: now(), level, event, subject: None, reason: None, message }, false);
    }

    fn write(&self, line: &Line<'_>, is_event: bool) {
        if self.lines.try_send(Written { text: text(line), is_event }).is_err() {
            self.metrics.lost();
        }
    }
}

/// Writes until the process ends.
fn write(lines: &Receiver<Written>, mut events: Option<Events>) {
    for Written { text, is_event } in lines {
        if let Some(events) = events.as_mut().filter(|_| is_event)
            && let Err(error) = events.add(&text)
        {
            let message = format!("Cannot write the file of events: {error}");
            let line =
                Line { time: now(), level: "warning", event: "events", subject: None, reason: None, message: &message };
            log(&self::text(&line));
        }
        log(&text);
    }
}

fn now() -> String {
    Timestamp::now().to_string()
}

fn text(line: &Line<'_>) -> String {
    let text = serde_json::to_string(line);
    text.expect("texts and numbers can always be written as JSON") + "\n"
}

fn log(line: &str) {
    // There is nobody to tell that nobody listens.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// The file of events.
struct Events {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Events {
    fn open(path: &Path) -> io::Result<Events> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(Events { path: path.to_owned(), file, size })
    }

    fn add(&mut self, line: &str) -> io::Result<()> {
        if self.size + line.len() as u64 > LARGEST_FILE {
            let mut full = self.path.clone().into_os_string();
            full.push(".1");
            std::fs::rename(&self.path, full)?;
            *self = Events::open(&self.path)?;
        }
        self.file.write_all(line.as_bytes())?;
        self.size += line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_agent_api::ContainerEvent;

    #[test]
    fn the_file_of_events_is_bounded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("events");
        let mut events = Events::open(&path).expect("the file");
        let line = "x".repeat(99) + "\n";
        for _ in 0..30_000 {
            events.add(&line).expect("written");
        }
        let size = |name: &str| directory.path().join(name).metadata().expect("a file").len();
        assert!(
            size("events") <= LARGEST_FILE && size("events.1") <= LARGEST_FILE && size("events.1") > LARGEST_FILE / 2
        );
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 2);
        assert_eq!(Events::open(&path).expect("the file").size, size("events"), "a new process goes on");
    }

    #[test]
    fn names_that_somebody_else_has_chosen_are_short_and_one_line() {
        let pod = PodSandbox { name: "a\"\n\u{1b}[2J".repeat(1000), ..PodSandbox::default() };
        let subject = Subject::new(&pod, &Container::default());
        let text = super::text(&Line {
            time: now(),
            level: "info",
            event: "e",
            subject: Some(&subject),
            reason: None,
            message: "",
        });
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.len() < 3000 && !text.contains('\u{1b}'), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON")["event"], "e");
    }

    /// The agent makes Events of Kubernetes of the file's lines.
    #[test]
    fn the_agent_can_read_the_lines() {
        let pod = PodSandbox {
            name: "web-0".into(),
            namespace: "shop".into(),
            uid: "1f0b8a52".into(),
            ..PodSandbox::default()
        };
        let subject = Subject::new(&pod, &Container { name: "app".into(), ..Container::default() });
        let reason = Reason::Static;
        let line = Line {
            time: now(),
            level: "info",
            event: Outcome::NoEffect(reason).name(),
            subject: Some(&subject),
            reason: Some(reason.name()),
            message: reason.sentence(),
        };
        let read: ContainerEvent = serde_json::from_str(&super::text(&line)).expect("an event");
        assert_eq!(
            (&*read.namespace, &*read.pod, &*read.pod_uid, &*read.container),
            ("shop", "web-0", "1f0b8a52", "app")
        );
        assert_eq!((&*read.event, &*read.reason, &*read.message), ("no-effect", "static", reason.sentence()));
        assert!(read.time.parse::<Timestamp>().is_ok(), "{}", read.time);
    }
}
