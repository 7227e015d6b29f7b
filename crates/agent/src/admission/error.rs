//! Why a pod is not admitted.

use crate::cluster::ConnectError;
use sidestep_mesh::object::Name;
use sidestep_mesh::yaml::Wrong;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    #[error(transparent)]
    Pod(#[from] PodError),
    #[error(
        "the API server's pod of this name has the UID {found}, and the runtime starts {asked}: it has to try again"
    )]
    OtherPod { asked: String, found: String },
    #[error("the pod's annotations cannot be read: correct them, and start the pod again")]
    Annotations(#[source] Wrong),
    #[error("the pod's document is no Capture")]
    NoCapture,
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the container {0} was never admitted, or has been released")]
    Unknown(String),
    #[error("the container {container} is admitted with another network namespace, {}", netns.display())]
    OtherNamespace { container: String, netns: PathBuf },
    #[error("the agent is about to end, or busy")]
    Ending,
    #[error("{0:?} is no name of a network, a container or an interface")]
    Name(String),
}

/// Why a pod cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    #[error("cannot reach the API server")]
    Connect(#[from] ConnectError),
    #[error("the API server does not know the pod {0}")]
    Unknown(Name),
    #[error("the agent's account may not read pods: give its ClusterRole the verb get for pods of the core group")]
    Forbidden(#[source] kube::Error),
    #[error("the API server does not answer")]
    Request(#[source] kube::Error),
    #[error("the API server's object of the pod cannot be read")]
    Unreadable(#[source] serde_json::Error),
    #[error("the API server did not answer in {0:?}")]
    Slow(Duration),
}

/// Why the state of a pod is not kept. The pod is not admitted then: a new agent would not know it.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("{}: cannot write it", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}: cannot read it", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: cannot remove it", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("{}: cannot make this directory for admitted pods", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error(
        "an earlier pod of this name, with the UID {uid}, still has its network namespace {}: the runtime has to try \
         again once that pod has ended",
        netns.display()
    )]
    Namesake { uid: String, netns: PathBuf },
    #[error("the pod has the network namespace {} by now: a later request has asked for it", netns.display())]
    Overtaken { netns: PathBuf },
}
