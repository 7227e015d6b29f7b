//! Admits the pods that the CNI plugin asks for: captured, and under their policies, before their first process runs.
//!
//! ```text
//!   CNI plugin --Admit--> [`answer`](crate::answer) --> a thread of its own:
//!                            pod's object      <-- API server                      [`pods`]
//!                            Capture document  --> file in the directory           [`document`], [`ledger`]
//!                                                    '--> source of captures --> node --> controller
//!                            wait              --> node: is it in force?           [`waiting`](crate::waiting)
//!   CNI plugin <--Admitted--
//! ```
//!
//! Nothing is admitted by default: a pod whose object cannot be read, or whose capture is not in force in time, is refused, and
//! the runtime tries again with a new sandbox.

mod asked;
mod document;
mod error;
mod ledger;
mod names;
mod pods;

use crate::cluster::Cluster;
use crate::message::{Message, QueryHandle, Wait, refused};
use document::Document;
use error::{AdmissionError, LedgerError};
use ledger::{Ledger, Record};
use pods::PodReader;
use sidestep_agent_api::{Admission, Admitted, Answer, Applicant, Attachment, Question, Refusal, Reply};
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Twice as many as the pods of a large node.
const MOST_REQUESTS: usize = 512;
/// Longer than any runtime waits.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// For CHECK, which may follow ADD at once, or come while the agent starts.
const VERIFYING: Duration = Duration::from_secs(5);
/// The main thread answers at the end of a wait, unless it is writing large tables.
const GRACE: Duration = Duration::from_secs(1);
/// How often ended pods are looked for that the plugin could not release.
const SWEEP: Duration = Duration::from_secs(10);

/// Why no pod can be admitted.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("cannot prepare to read pods")]
    Runtime(#[source] io::Error),
}

pub struct Admissions {
    ledger: Mutex<Ledger>,
    /// The node's directory of network namespaces, which is at /run/netns here.
    host_netns: PathBuf,
    pods: PodReader,
    inbox: Sender<Message>,
    /// Requests that are being answered.
    requests: AtomicUsize,
}

/// The limit protects the agent. The runtime tries again.
#[derive(Debug, thiserror::Error)]
#[error("{0} requests of the CNI plugin are being answered already: the runtime has to try again")]
pub struct TooMany(usize);

/// The right to have one request answered, of which there is a limited number.
pub struct Turn(Arc<Admissions>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turn {
    /// Takes as long as the request allows.
    pub fn answer(self, request: Admission) -> Reply {
        self.0.answer(request)
    }
}

impl Admissions {
    pub fn new(
        directory: &Path,
        host_netns: &Path,
        cluster: Cluster,
        inbox: Sender<Message>,
    ) -> Result<Admissions, StartError> {
        let ledger = Mutex::new(Ledger::open(directory)?);
        let pods = PodReader::new(cluster).map_err(StartError::Runtime)?;
        Ok(Admissions { ledger, host_netns: host_netns.into(), pods, inbox, requests: AtomicUsize::new(0) })
    }

    /// The error: too many requests are being answered.
    pub fn begin(self: &Arc<Self>) -> Result<Turn, TooMany> {
        let turn = Turn(Arc::clone(self));
        match self.requests.fetch_add(1, Ordering::Relaxed) {
            others if others < MOST_REQUESTS => Ok(turn),
            others => Err(TooMany(others)),
        }
    }

    /// Forgets pods that end, for ever.
    pub fn sweep(&self) {
        loop {
            std::thread::sleep(SWEEP);
            self.ledger().forget_ended();
        }
    }

    /// Whether the pod is admitted, or about to be.
    pub fn knows(&self, pod: &Name) -> bool {
        self.ledger().has_pod(pod)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: Admission) -> Reply {
        match request {
            Admission::Admit(applicant) => self.admit(&applicant),
            Admission::Release(attachment) => self.release(&attachment).map_err(|error| refused(&error)),
            Admission::Verify(attachment) => self.verify(&attachment),
            Admission::Collect { network, valid } => {
                let kept = self.ledger().keep(&network, &valid).map_err(|error| refused(&error));
                kept.map(|count| tracing::info!(network, count, "pods that the runtime does not know are forgotten"))?;
                Ok(Answer::Done)
            }
            Admission::Ready => QueryHandle::new(self.inbox.clone()).ask(Question::Admission(Admission::Ready)),
        }
    }

    fn admit(&self, applicant: &Applicant) -> Reply {
        let (pod, begun) = (format!("{}/{}", applicant.namespace, applicant.name), Instant::now());
        let admitted = self.try_admit(applicant, begun);
        let took = begun.elapsed();
        match &admitted {
            Ok(Admitted { uncaptured: None }) => tracing::info!(pod, ?took, "admitted: it is captured"),
            Ok(Admitted { uncaptured: Some(why) }) => tracing::info!(pod, ?took, why, "admitted without a capture"),
            Err(refusal) => tracing::warn!(pod, ?took, "not admitted: {refusal}"),
        }
        admitted.map(Answer::Admitted)
    }

    fn try_admit(&self, applicant: &Applicant, begun: Instant) -> Result<Admitted, Refusal> {
        let until = begun + Duration::from_millis(applicant.within_ms).min(LONGEST_WAIT);
        names::check(applicant).map_err(|error| refused(&error))?;
        let Document { text, capture, uncaptured } =
            self.document(applicant, until).map_err(|error| refused(&error))?;
        let (attachment, netns) = (applicant.attachment.clone(), capture.netns.path());
        let uncaptured = uncaptured.map(str::to_string);
        if self.is_admitted(&attachment, &netns).map_err(|error| refused(&error))? {
            // A further interface of the pod.
            return self.verify(&attachment).map(|_| Admitted { uncaptured });
        }
        let (pod, uid) = (capture.name.clone(), capture.uid.clone());
        let record = Record { attachment, pod, uid, netns, asked: Some(begun) };
        self.ledger().put(record, &text).map_err(|error| refused(&error))?;
        match self.wait(capture, until) {
            Ok(_) => Ok(Admitted { uncaptured }),
            Err(refusal) => {
                // The runtime makes a new sandbox for the next attempt.
                self.release(&applicant.attachment).map_err(|error| refused(&error))?;
                Err(refusal)
            }
        }
    }

    fn document(&self, applicant: &Applicant, until: Instant) -> Result<Document, AdmissionError> {
        let name = Name::new(&applicant.namespace, &applicant.name);
        let pod = self.pods.read(&name, until.saturating_duration_since(Instant::now()))?;
        Document::new(applicant, &pod, &self.host_netns)
    }

    /// Whether the container is admitted by another of its interfaces.
    fn is_admitted(&self, attachment: &Attachment, netns: &Path) -> Result<bool, AdmissionError> {
        match self.ledger().get(&attachment.container) {
            Some(known) if known.attachment == *attachment => Ok(false),
            Some(known) if known.netns == netns => Ok(true),
            Some(known) => {
                let (container, netns) = (attachment.container.clone(), known.netns.clone());
                Err(AdmissionError::OtherNamespace { container, netns })
            }
            None => Ok(false),
        }
    }

    fn release(&self, attachment: &Attachment) -> Result<Answer, LedgerError> {
        let mut ledger = self.ledger();
        if ledger.get(&attachment.container).is_some_and(|known| known.attachment == *attachment) {
            ledger.remove(&attachment.container)?;
        }
        Ok(Answer::Done)
    }

    fn verify(&self, attachment: &Attachment) -> Reply {
        let container = &attachment.container;
        let capture = {
            let ledger = self.ledger();
            match ledger.get(container) {
                Some(_) => ledger.capture(container),
                None => Err(AdmissionError::Unknown(container.clone())),
            }
        };
        self.wait(capture.map_err(|error| refused(&error))?, Instant::now() + VERIFYING)
    }

    /// Waits until the capture is in force.
    fn wait(&self, capture: Capture, until: Instant) -> Reply {
        let (reply, answer) = sync_channel(1);
        let wait = Wait { capture: Box::new(capture), until, reply };
        self.inbox.send(Message::Wait(wait)).map_err(|_| refused(&AdmissionError::Ending))?;
        let left = until.saturating_duration_since(Instant::now()) + GRACE;
        answer.recv_timeout(left).map_err(|_| refused(&AdmissionError::Ending))?
    }
}
