//! Pods of this node that run without having been admitted, since they were there before the CNI plugin, or came while it was out of
//! the chain: neither capture nor policies are in force for them until they are started anew. They are labelled, or evicted.
//!
//! A pod counts as left out when two looks in a row, and a third one just before something is done, say so.

mod act;
mod left_out;

use crate::admission::Admissions;
use crate::announce::{Announcer, Reason, Subject};
use crate::cluster::{Cluster, ConnectError};
use crate::complaints::Complaints;
use crate::message::QueryHandle;
use crate::settings::{Remedy, RepairSettings};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use sidestep_agent_api::{Answer, Question, Trouble};
use sidestep_error::chain;
use sidestep_mesh::object::Name;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

const PLACE: &str = "repair of pods that were not admitted";
/// The main thread answers within milliseconds, unless it is writing large tables.
const PATIENCE: Duration = Duration::from_secs(5);
/// An API server that does not answer in this time is asked again later.
const PATIENCE_FOR_SERVER: Duration = Duration::from_secs(20);
/// Pods that something is done about at a look: a node is not emptied at once.
const MOST: usize = 10;
/// More than any node may run.
const MOST_PODS: u32 = 2000;

pub struct Repair {
    pub cluster: Cluster,
    pub admissions: Arc<Admissions>,
    pub queries: QueryHandle,
    pub node: String,
    pub settings: RepairSettings,
    pub announcer: Announcer,
}

#[derive(Debug, thiserror::Error)]
enum RepairError {
    #[error("cannot reach the API server")]
    Connect(#[from] ConnectError),
    #[error("the agent's account may not {verb}: give its ClusterRole the verb {verb}, or end --repair")]
    Forbidden { verb: &'static str, source: kube::Error },
    #[error("the API server does not {verb}")]
    Request { verb: &'static str, source: kube::Error },
    #[error("the API server did not answer in {PATIENCE_FOR_SERVER:?}")]
    Slow,
}

impl RepairError {
    fn new(verb: &'static str, source: kube::Error) -> RepairError {
        match &source {
            kube::Error::Api(status) if status.code == 403 => RepairError::Forbidden { verb, source },
            _ => RepairError::Request { verb, source },
        }
    }
}

impl Repair {
    /// For ever.
    pub fn run(mut self) {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.look_again_and_again()),
            Err(error) => tracing::warn!("pods that were not admitted are not looked for: {}", chain(&error)),
        }
    }

    async fn look_again_and_again(&mut self) {
        let (mut suspects, mut complaints) = (HashSet::new(), Complaints::default());
        loop {
            tokio::time::sleep(self.settings.after).await;
            let looked = tokio::time::timeout(PATIENCE_FOR_SERVER, self.look(&mut suspects)).await;
            match looked.unwrap_or(Err(RepairError::Slow)) {
                Ok(()) => complaints.end(PLACE),
                Err(error) => {
                    let what = chain(&error).to_string();
                    complaints.tell(&Trouble { place: PLACE.into(), what, hides_objects: false });
                }
            }
        }
    }

    /// `suspects`: UIDs of pods that the last look has found left out.
    async fn look(&mut self, suspects: &mut HashSet<String>) -> Result<(), RepairError> {
        let before = std::mem::take(suspects);
        // Until then not every document has been read.
        if !self.queries.health(PATIENCE).await.is_some_and(|health| health.is_ready()) {
            return Ok(());
        }
        let client = self.cluster.connect_impatiently().await?;
        // From the server's memory: it may be old, and the pod is read once more before anything is done.
        let mine = ListParams::default().fields(&format!("spec.nodeName={}", self.node)).match_any().limit(MOST_PODS);
        let pods = Api::<Pod>::all(client.clone()).list(&mine).await;
        let pods = pods.map_err(|error| RepairError::new("list pods", error))?;
        let documents = self.documents();
        let (left_out, known): (Vec<Pod>, Vec<Pod>) =
            pods.items.into_iter().partition(|pod| !self.is_known(pod, &documents));
        suspects.extend(left_out.iter().filter(|pod| left_out::is_left_out(pod)).filter_map(ResourceExt::uid));
        let remedy = self.settings.remedy;
        let is_due = |pod: &&Pod| pod.uid().is_some_and(|uid| before.contains(&uid) && suspects.contains(&uid));
        let due = left_out.iter().filter(is_due).filter(|pod| !act::is_done(pod, remedy));
        let mut changed = 0;
        for pod in due {
            changed += usize::from(self.repair(&client, pod, &documents).await?);
            if changed == MOST {
                break;
            }
        }
        if remedy == Remedy::Label {
            for pod in known.iter().filter(|pod| act::is_labelled(pod)).take(MOST) {
                act::label(&client, pod, false).await?;
            }
        }
        Ok(())
    }

    /// Whether something was changed.
    async fn repair(&mut self, client: &Client, pod: &Pod, documents: &HashSet<Name>) -> Result<bool, RepairError> {
        let pods = Api::<Pod>::namespaced(client.clone(), &act::namespace(pod));
        let now = pods.get_opt(&pod.name_any()).await.map_err(|error| RepairError::new("get pods", error))?;
        let is_same = |now: &Pod| now.uid() == pod.uid() && left_out::is_left_out(now);
        let Some(now) = now.filter(|now| is_same(now) && !self.is_known(now, documents)) else { return Ok(false) };
        self.announce(&now);
        match self.settings.remedy {
            Remedy::Label => act::label(client, &now, true).await,
            Remedy::Delete if left_out::has_controller(&now) => act::evict(client, &now).await,
            Remedy::Delete => Ok(false),
        }
    }

    /// Admitted now, or captured by a document of the operator.
    fn is_known(&self, pod: &Pod, documents: &HashSet<Name>) -> bool {
        let name = act::name(pod);
        self.admissions.knows(&name) || documents.contains(&name)
    }

    fn documents(&self) -> HashSet<Name> {
        match self.queries.ask(Question::Captures { pins: None }) {
            Ok(Answer::Captures(all)) => {
                all.captures.iter().map(|capture| Name::new(&capture.namespace, &capture.name)).collect()
            }
            _ => HashSet::new(),
        }
    }

    fn announce(&mut self, pod: &Pod) {
        let Name { namespace, name } = act::name(pod);
        let subject = Subject::Pod { namespace, name, uid: pod.uid().map(Into::into), container: None };
        let note = "It was started without the CNI plugin: neither capture nor policies are in force. Start it anew";
        self.announcer.warn(subject, Reason::NotAdmitted, note);
    }
}
