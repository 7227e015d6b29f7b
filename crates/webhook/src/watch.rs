//! Follows the nodes, and the pods of the DaemonSet, at the API server: list, then watch; again, with growing pauses, when that fails.

use crate::node::Node;
use crate::nodes::Nodes;
use futures_util::StreamExt;
use futures_util::future::join;
use k8s_openapi::api::core::v1::{Node as Object, Pod};
use kube::config::InClusterError;
use kube::runtime::watcher::{Config, DefaultBackoff, Event};
use kube::{Api, Client, ResourceExt};
use sidestep_error::chain;
use std::collections::HashSet;
use std::io;
use std::time::Duration;

/// Pause between attempts for the first connection.
const AGAIN: Duration = Duration::from_secs(1);

/// Which pods install the library.
#[derive(Clone, Debug)]
pub struct Installers {
    /// Their namespace.
    pub namespace: String,
    /// A selector of their labels.
    pub selector: String,
}

/// Starts a thread that keeps `nodes` up to date until the process ends.
pub fn start(installers: Installers, nodes: Nodes) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let follow = move || runtime.block_on(follow(&installers, &nodes));
    std::thread::Builder::new().name("nodes".into()).spawn(follow)?;
    Ok(())
}

/// Why there is no client for the API server.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error(transparent)]
    InCluster(#[from] InClusterError),
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// As a pod of the cluster.
fn connect() -> Result<Client, ConnectError> {
    Ok(Client::try_from(kube::Config::incluster()?)?)
}

async fn follow(installers: &Installers, nodes: &Nodes) {
    let client = loop {
        match connect() {
            Ok(client) => break client,
            Err(error) => tracing::warn!("there is no client for the API server: {}", chain(&error)),
        }
        tokio::time::sleep(AGAIN).await;
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &installers.namespace);
    let pods = each(pods, Config::default().labels(&installers.selector), |event| pod(event, nodes));
    let mut seen = HashSet::new();
    let all = each(Api::<Object>::all(client), Config::default(), |event| node(event, nodes, &mut seen));
    join(pods, all).await;
}

async fn each<K>(api: Api<K>, config: Config, mut note: impl FnMut(Event<K>))
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let mut events = sidestep_watch::events(api, config, DefaultBackoff::default());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => note(event),
            Err(error) => {
                let (kind, why) = (K::plural(&()), chain(&error));
                tracing::warn!("cannot list or watch {kind} at the API server, will try again: {why}");
            }
        }
    }
}

/// `seen`: nodes of a list that is being read.
fn node(event: Event<Object>, nodes: &Nodes, seen: &mut HashSet<String>) {
    match event {
        Event::Apply(node) => nodes.add(node.name_any(), reduced(node)),
        Event::Delete(node) => nodes.remove(&node.name_any()),
        Event::Init => seen.clear(),
        Event::InitApply(node) => {
            seen.insert(node.name_any());
            nodes.add(node.name_any(), reduced(node));
        }
        Event::InitDone => nodes.complete(&std::mem::take(seen)),
    }
}

fn reduced(node: Object) -> Node {
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    Node { labels: node.metadata.labels.unwrap_or_default(), taints }
}

/// A pod's init containers install the library. It stays when the pod goes.
fn pod(event: Event<Pod>, nodes: &Nodes) {
    if let Event::Apply(pod) | Event::InitApply(pod) = event
        && is_initialized(&pod)
        && let Some(node) = pod.spec.and_then(|spec| spec.node_name)
    {
        nodes.note_library(node);
    }
}

fn is_initialized(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Initialized" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::select;
    use serde_json::{Value, json};
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::pin::pin;
    use tokio::sync::mpsc::unbounded_channel;

    fn node_of(name: &str) -> Object {
        serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node")
    }

    fn pod_of(initialized: &str) -> Pod {
        let object: Value = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": "n1"},
            "status": {"conditions": [{"type": "Initialized", "status": initialized}]}});
        serde_json::from_value(object).expect("a pod")
    }

    #[test]
    fn nodes_are_known_once_a_list_is_whole_and_have_the_library_once_a_pod_is_initialized() {
        let (nodes, mut seen) = (Nodes::unknown(), HashSet::new());
        let any = crate::pod::Pod::default();
        for event in [Event::Init, Event::InitApply(node_of("n1"))] {
            node(event, &nodes, &mut seen);
        }
        pod(Event::Apply(pod_of("True")), &nodes);
        assert!(!nodes.are_known() && !nodes.all_have_library(&any));
        node(Event::InitDone, &nodes, &mut seen);
        assert!(nodes.are_known() && nodes.all_have_library(&any));

        // The pod is replaced: what it has installed stays.
        pod(Event::Delete(pod_of("True")), &nodes);
        pod(Event::Apply(pod_of("False")), &nodes);
        assert!(nodes.all_have_library(&any));

        // A node that comes has no library yet, and one that is missing from a later list is gone.
        node(Event::Apply(node_of("n2")), &nodes, &mut seen);
        assert!(!nodes.all_have_library(&any));
        for event in [Event::Init, Event::InitApply(node_of("n1")), Event::InitDone] {
            node(event, &nodes, &mut seen);
        }
        assert!(nodes.all_have_library(&any));
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    /// An API server that has forgotten each list when the watch after it begins. The lists are of node `n1`, then `n2`, and so on.
    fn forgetful() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let mut lists = 0;
            listener.incoming().flatten().for_each(|stream| answer(stream, &mut lists));
        });
        address
    }

    fn answer(mut stream: TcpStream, lists: &mut u32) {
        let reader = BufReader::new(stream.try_clone().expect("a duplicate"));
        let head: Vec<String> = reader.lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(asked) = head.first() else { return };
        let (status, body) = if asked.contains("watch=") {
            let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                              "reason": "Expired", "message": "too old resource version", "code": 410});
            ("410 Gone", gone)
        } else {
            *lists += 1;
            let node = json!({"metadata": {"name": format!("n{lists}"), "resourceVersion": "7"}});
            ("200 OK", json!({"metadata": {"resourceVersion": "7"}, "items": [node]}))
        };
        let (body, length) = (body.to_string(), body.to_string().len());
        let head = "Content-Type: application/json\r\nConnection: close";
        // The client may have gone.
        let _ = write!(stream, "HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    }

    #[test]
    fn after_a_version_that_the_server_has_forgotten_nodes_are_listed_again() {
        let url = format!("http://{}", forgetful()).parse().expect("a URL");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = Client::try_from(kube::Config::new(url)).expect("a client");
            let (told, mut heard) = unbounded_channel();
            let following = each(Api::<Object>::all(client), Config::default(), |event| {
                if let Event::InitApply(node) = event {
                    let _ = told.send(node.name_any());
                }
            });
            let second = async { while heard.recv().await.is_some_and(|name| name != "n2") {} };
            let (following, second) = (pin!(following), pin!(second));
            let listed = tokio::time::timeout(PATIENCE, select(following, second)).await;
            assert!(listed.is_ok(), "no second list");
        });
    }
}
