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
use std::path::{Path, PathBuf};
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
    /// The directory of the node in which they install it.
    pub library: PathBuf,
}

/// What the pods' init container that installs the library is called, and so is the volume with the directory.
const LIBRARY: &str = "library";

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
    let pods =
        each(pods, Config::default().labels(&installers.selector), |event| pod(event, &installers.library, nodes));
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

/// An init container installs the library. The library stays when the pod goes.
fn pod(event: Event<Pod>, library: &Path, nodes: &Nodes) {
    match event {
        Event::Apply(pod) | Event::InitApply(pod) => {
            let installs = installs(&pod, library);
            let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
            match installs {
                Installs::Has => nodes.note_library(node),
                Installs::Will => {}
                Installs::Nothing => nodes.forget_library(&node),
            }
        }
        Event::InitDone => nodes.libraries_are_known(),
        Event::Delete(_) | Event::Init => {}
    }
}

/// What a pod of the DaemonSet does with the library that containers get.
enum Installs {
    Has,
    Will,
    /// It has it taken away, is of a release without injection, or installs it elsewhere.
    Nothing,
}

fn installs(pod: &Pod, library: &Path) -> Installs {
    let spec = pod.spec.as_ref();
    let volumes = spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut paths =
        volumes.iter().filter(|volume| volume.name == LIBRARY).filter_map(|volume| volume.host_path.as_ref());
    let containers = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    if !paths.any(|volume| Path::new(&volume.path) == library) || !containers.iter().any(|one| one.name == LIBRARY) {
        return Installs::Nothing;
    }
    let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    let ended = statuses.iter().filter(|status| status.name == LIBRARY).filter_map(|status| status.state.as_ref());
    let mut ended = ended.filter_map(|state| state.terminated.as_ref());
    if ended.any(|end| end.exit_code == 0) { Installs::Has } else { Installs::Will }
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

    /// A pod on node `n1` whose init container, if it has any, is in this state.
    fn pod_of(path: &str, state: Option<Value>) -> Pod {
        let containers: Vec<_> = state.iter().map(|_| json!({"name": LIBRARY})).collect();
        let statuses: Vec<_> = state.iter().map(|state| {
            json!({"name": LIBRARY, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state})
        }).collect();
        let volume = json!({"name": LIBRARY, "hostPath": {"path": path}});
        let object: Value = json!({"metadata": {"name": "p"},
            "spec": {"containers": [], "initContainers": containers, "volumes": [volume], "nodeName": "n1"},
            "status": {"initContainerStatuses": statuses}});
        serde_json::from_value(object).expect("a pod")
    }

    fn ended(code: i32) -> Option<Value> {
        Some(json!({"terminated": {"exitCode": code}}))
    }

    const STORE: &str = "/usr/lib/sidestep";

    #[test]
    fn nodes_are_known_once_both_lists_are_whole_and_have_the_library_once_a_pod_has_installed_it() {
        let pod = |event, nodes: &Nodes| super::pod(event, Path::new(STORE), nodes);
        let (nodes, mut seen) = (Nodes::unknown(), HashSet::new());
        let any = crate::pod::Pod::default();
        for event in [Event::Init, Event::InitApply(node_of("n1"))] {
            node(event, &nodes, &mut seen);
        }
        pod(Event::InitApply(pod_of(STORE, ended(0))), &nodes);
        assert!(!nodes.are_known() && !nodes.all_have_library(&any));
        node(Event::InitDone, &nodes, &mut seen);
        assert!(!nodes.are_known(), "without the pods");
        pod(Event::InitDone, &nodes);
        assert!(nodes.are_known() && nodes.all_have_library(&any));

        // The pod is replaced: what it has installed stays.
        pod(Event::Delete(pod_of(STORE, ended(0))), &nodes);
        for state in [Some(json!({"waiting": {}})), Some(json!({"running": {}})), ended(1)] {
            pod(Event::Apply(pod_of(STORE, state)), &nodes);
            assert!(nodes.all_have_library(&any));
        }

        // One that removes it, or that is of a release without, or with another directory.
        for other in [pod_of(STORE, None), pod_of("/opt/sidestep", ended(0))] {
            pod(Event::Apply(other), &nodes);
            assert!(!nodes.all_have_library(&any));
            pod(Event::Apply(pod_of(STORE, ended(0))), &nodes);
            assert!(nodes.all_have_library(&any));
        }

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
