//! Pods of this node that run without having been admitted, since they were there before the CNI plugin, or came while it was out of
//! the chain: neither capture nor policies are in force for them until they are started anew. They are labelled, or evicted.
//!
//! A pod counts as left out when two looks in a row, and a third one just before something is done, say so.

mod act;
mod left_out;

use crate::admission::Admissions;
use crate::announce::{Announcer, Reason, Subject};
use crate::cluster::{Cluster, Reduced};
use crate::errand::{Errand, ErrandError};
use crate::message::QueryHandle;
use crate::settings::{Remedy, RepairSettings};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use sidestep_agent_api::{Answer, Question};
use sidestep_mesh::object::Name;
use std::collections::HashSet;
use std::sync::Arc;

const PLACE: &str = "repair of pods that were not admitted";
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

impl Repair {
    /// For ever.
    pub fn run(mut self) {
        let (mut suspects, queries, pause) = (HashSet::new(), self.queries.clone(), self.settings.after);
        let errand = Errand { place: PLACE, queries: &queries, pause, pause_after_failure: pause };
        errand.run(async || self.look(&mut suspects).await);
    }

    /// `suspects`: UIDs of pods that the last look has found left out.
    async fn look(&mut self, suspects: &mut HashSet<String>) -> Result<(), ErrandError> {
        let before = std::mem::take(suspects);
        let client = self.cluster.connect_impatiently().await?;
        // From the server's memory: it may be old, and the pod is read once more before anything is done.
        let mine = ListParams::default().fields(&format!("spec.nodeName={}", self.node)).match_any().limit(MOST_PODS);
        let pods = Api::<Reduced<Pod>>::all(client.clone()).list(&mine).await;
        let pods = pods.map_err(ErrandError::of("list pods"))?;
        let documents = self.documents()?;
        let pods = pods.items.into_iter().filter_map(|pod| pod.whole().ok());
        let (left_out, known): (Vec<Pod>, Vec<Pod>) = pods.partition(|pod| !self.is_known(pod, &documents));
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
    async fn repair(&mut self, client: &Client, pod: &Pod, documents: &HashSet<Name>) -> Result<bool, ErrandError> {
        let pods = Api::<Reduced<Pod>>::namespaced(client.clone(), &act::namespace(pod));
        let now = pods.get_opt(&pod.name_any()).await.map_err(ErrandError::of("get pods"))?;
        let now = now.and_then(|now| now.whole().ok());
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

    fn documents(&self) -> Result<HashSet<Name>, ErrandError> {
        match self.queries.ask(Question::Captures { pins: None }).map_err(ErrandError::Captures)? {
            Answer::Captures(all) => {
                Ok(all.captures.iter().map(|capture| Name::new(&capture.namespace, &capture.name)).collect())
            }
            _ => Ok(HashSet::new()),
        }
    }

    fn announce(&mut self, pod: &Pod) {
        let Name { namespace, name } = act::name(pod);
        let subject = Subject::Pod { namespace, name, uid: pod.uid().map(Into::into), container: None };
        let note = "It was started without the CNI plugin: neither capture nor policies are in force. Start it anew";
        self.announcer.warn(subject, Reason::NotAdmitted, note);
    }
}
