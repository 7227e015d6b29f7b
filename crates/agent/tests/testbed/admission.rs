//! Pods that are admitted as the CNI plugin asks for it: captured and under their policies from their first connection on.

mod namesakes;

use crate::agent::{Node, median};
use crate::api_server::{PODS, PORT, Server, World};
use crate::policy::world::{ONLY_WEB, call, is_refused};
use crate::yaml;
use serde_json::{Value, json};
use sidestep_agent_api::{Admission, Admitted, Answer, Applicant, Attachment, Question};
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Greeter, INBOUND, OUTBOUND, ROOT, greeted};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A node whose agent admits pods of this API server.
pub struct Cluster {
    pub world: Arc<World>,
    server: Option<Server>,
    pub node: Node,
}

impl Cluster {
    pub fn new(options: &[&str]) -> Cluster {
        let (node, world) = (Node::new(), World::new());
        let server = Some(Server::start(&world, &node.testbed.node));
        let mut cluster = Cluster { world, server, node };
        cluster.start(options);
        cluster
    }

    fn start(&mut self, options: &[&str]) {
        self.spawn(options);
        self.node.wait_until_attached();
    }

    fn spawn(&mut self, options: &[&str]) {
        let (kubeconfig, admissions) = (self.node.kubeconfig(PORT), self.admissions());
        let own = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--admissions", admissions.to_str().unwrap()];
        self.node.spawn(&[&own[..], options].concat());
    }

    fn admissions(&self) -> PathBuf {
        self.node.directory.path().join("admissions")
    }

    /// Names of the files of admitted pods.
    pub fn kept(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.admissions()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|n| !n.starts_with('.'))
            .collect();
        names.sort();
        names
    }

    /// Makes the pod's object, with a sidecar.
    pub fn meshed(&self, name: &str, annotations: Value) {
        let mut all = json!({"sidecar.istio.io/status": "{}"});
        all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
        self.world.put(PODS, object(name, all, json!([{"name": "app"}, {"name": "istio-proxy"}])));
    }

    /// Makes the pod's object, without a sidecar.
    fn plain(&self, name: &str) {
        self.world.put(PODS, object(name, json!({}), json!([{"name": "app"}])));
    }

    fn request(&self, request: Admission) -> Result<Answer, String> {
        self.node.ask(Question::Admission(request))
    }

    /// Asks for the pod, whose sandbox is called as the pod.
    pub fn admit(&self, name: &str, pod: &Pod) -> Result<Option<String>, String> {
        match self.request(Admission::Admit(applicant(name, pod)))? {
            Answer::Admitted(Admitted { uncaptured }) => Ok(uncaptured),
            other => panic!("{other:?}"),
        }
    }
}

fn object(name: &str, annotations: Value, containers: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "annotations": annotations,
                        "labels": {"app": name}},
           "spec": {"nodeName": "node", "containers": containers}, "status": {"phase": "Pending"}})
}

fn attachment(container: &str) -> Attachment {
    Attachment { network: "net".into(), container: container.into(), interface: "eth0".into() }
}

fn applicant(name: &str, pod: &Pod) -> Applicant {
    Applicant {
        attachment: attachment(name),
        netns: pod.namespace.path(),
        namespace: "default".into(),
        name: name.into(),
        uid: Some(format!("uid-{name}")),
        addresses: vec![pod.v4, pod.v6],
        within_ms: 20_000,
    }
}

fn is_barred(from: &Pod, to: &Pod) -> bool {
    matches!(call(from, to), Err(error) if error.kind() == ErrorKind::NetworkUnreachable)
}

/// No connection of many pods goes around the proxy, though each is made at once after the answer.
#[test]
fn the_first_connection_of_an_admitted_pod_goes_through_its_proxy() {
    let mut cluster = Cluster::new(&[]);
    let peer = cluster.node.routed();
    let _program = Greeter::program(&peer, 8080);
    let to = SocketAddr::new(peer.v4, 8080);
    let pods: Vec<Pod> = (0..20).map(|_| cluster.node.routed()).collect();
    let mut times = Vec::new();
    for (number, pod) in pods.iter().enumerate() {
        let name = format!("web-{number}");
        cluster.meshed(&name, json!({}));
        let begun = Instant::now();
        assert_eq!(cluster.admit(&name, pod), Ok(None));
        times.push(begun.elapsed());
        // The proxy comes after the pod's sandbox: before, its connections are refused.
        let early = greeted(pod, ROOT, to).unwrap_err();
        assert_eq!(early.kind(), ErrorKind::ConnectionRefused, "{name}: {early}");
        let _proxy = Greeter::proxy(pod);
        let seen = greeted(pod, ROOT, to).unwrap();
        assert_eq!((seen.listener, seen.original), (OUTBOUND, Some(to)), "{name}: {seen:?}");
        let inbound = greeted(&peer, ROOT, SocketAddr::new(pod.v4, 9999)).unwrap();
        assert_eq!(inbound.listener, INBOUND, "{name}: {inbound:?}");
    }
    println!("admitted in {:?} in the middle, {:?} at most", median(&times), times.iter().max().unwrap());
    assert!(cluster.node.check().is_well(), "{:?}", cluster.node.check());
    assert_eq!(cluster.kept().len(), 20);
}

#[test]
fn a_pods_annotations_and_its_proxys_user_count() {
    let mut cluster = Cluster::new(&[]);
    let [pod, peer] = [(); 2].map(|()| cluster.node.routed());
    let _programs = [Greeter::program(&peer, 8080), Greeter::program(&peer, 8081)];
    let mut it = object(
        "web",
        json!({"sidecar.istio.io/status": "{}", "traffic.sidecar.istio.io/excludeOutboundPorts": "8081"}),
        json!([{"name": "app"}]),
    );
    it["spec"]["initContainers"] = json!([{"name": "istio-proxy", "restartPolicy": "Always",
                                           "securityContext": {"runAsUser": 5005, "runAsGroup": 5006}}]);
    cluster.world.put(PODS, it);
    assert_eq!(cluster.admit("web", &pod), Ok(None));
    let proxy = (5005, 5006);
    let _proxy = Greeter::new(&pod, proxy, &sidestep_testkit::greeter::any(OUTBOUND));
    let met = |owner, port| greeted(&pod, owner, SocketAddr::new(peer.v4, port)).unwrap().listener;
    assert_eq!((met(ROOT, 8080), met(ROOT, 8081), met(proxy, 8080)), (OUTBOUND, 8081, 8080));
}

/// On an armed node a pod without a proxy communicates with nobody before its policies are in force, and with those only after.
#[test]
fn a_pod_without_a_sidecar_is_admitted_under_its_policies() {
    let policies = tempfile::tempdir().unwrap();
    std::fs::write(policies.path().join("db.yaml"), yaml::policy("db", ONLY_WEB)).unwrap();
    let mut cluster = Cluster::new(&["--arm", "--captures", policies.path().to_str().unwrap()]);
    let [db, web, other] = [(); 3].map(|()| cluster.node.routed());
    let _servers = [&db, &web, &other].map(crate::agent::server);
    for (name, pod) in [("web", &web), ("other", &other), ("db", &db)] {
        cluster.plain(name);
        let mut object = object(name, json!({}), json!([{"name": "app"}]));
        object["status"]["podIPs"] = json!([{"ip": pod.v4.to_string()}]);
        cluster.world.put(PODS, object);
    }
    assert!(is_barred(&web, &other));
    for (name, pod) in [("web", &web), ("other", &other)] {
        let why = cluster.admit(name, pod).unwrap().unwrap();
        assert!(why.contains("no container istio-proxy"), "{why}");
    }
    assert!(call(&web, &other).is_ok());
    assert!(is_barred(&db, &web));
    cluster.admit("db", &db).unwrap();
    // At once: there is no moment in which all may call.
    assert!(is_refused(&other, &db));
    cluster.node.wait(|_| call(&web, &db).is_ok());
    assert!(is_refused(&other, &db));
    cluster.request(Admission::Release(attachment("db"))).unwrap();
    cluster.node.wait(|_| is_barred(&db, &web));
}

#[test]
fn what_cannot_be_admitted_is_refused_and_leaves_nothing() {
    let mut cluster = Cluster::new(&["--arm"]);
    let [pod, peer] = [(); 2].map(|()| cluster.node.routed());
    let _server = crate::agent::server(&peer);
    let refused = |cluster: &Cluster, expected: &str| {
        let told = cluster.admit("web", &pod).unwrap_err();
        assert!(told.contains(expected), "{told}");
        assert!(is_barred(&pod, &peer));
        assert!(cluster.kept().is_empty(), "{:?}", cluster.kept());
    };
    refused(&cluster, "the API server does not know the pod default/web");
    cluster.meshed("web", json!({"traffic.sidecar.istio.io/excludeOutboundPorts": "http"}));
    refused(&cluster, "excludeOutboundPorts");
    cluster.meshed("web", json!({"sidecar.istio.io/interceptionMode": "TPROXY"}));
    refused(&cluster, "TPROXY");
    cluster.world.put(PODS, {
        let mut other = object("web", json!({}), json!([]));
        other["metadata"]["uid"] = "another".into();
        other
    });
    refused(&cluster, "has the UID another");
    cluster.world.refuse(PODS, true);
    refused(&cluster, "give its ClusterRole the verb get for pods");
    cluster.world.refuse(PODS, false);
    cluster.server = None;
    refused(&cluster, "API server");
    cluster.server = Some(Server::start(&cluster.world, &cluster.node.testbed.node));
    cluster.meshed("web", json!({}));
    let request = Question::Admission(Admission::Admit(applicant("web", &pod)));
    cluster.node.wait(|node| node.ask(request.clone()).is_ok());
}

/// The runtime names the namespace by a directory of the node that the agent, in its container, has elsewhere.
#[test]
fn a_pods_namespace_is_found_where_the_node_keeps_it() {
    let mut cluster = Cluster::new(&["--host-netns", "/elsewhere/netns"]);
    let pod = cluster.node.routed();
    cluster.meshed("web", json!({}));
    let netns = PathBuf::from("/elsewhere/netns").join(pod.namespace.name());
    let admitted = cluster.request(Admission::Admit(Applicant { netns, ..applicant("web", &pod) }));
    assert!(matches!(admitted, Ok(Answer::Admitted(Admitted { uncaptured: None }))), "{admitted:?}");
    cluster.request(Admission::Verify(attachment("web"))).unwrap();
}

/// A request that waits, here for a namespace that never comes, delays nobody else.
#[test]
fn a_request_that_waits_is_bounded_and_in_nobodys_way() {
    let mut cluster = Cluster::new(&[]);
    let pod = cluster.node.routed();
    cluster.meshed("lost", json!({}));
    cluster.meshed("web", json!({}));
    let mut lost = applicant("lost", &pod);
    (lost.netns, lost.within_ms) = ("/run/netns/no-such-namespace".into(), 3000);
    std::thread::scope(|scope| {
        let begun = Instant::now();
        let waiting = scope.spawn(|| cluster.request(Admission::Admit(lost)));
        assert_eq!(cluster.admit("web", &pod), Ok(None));
        cluster.node.status().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        let told = waiting.join().unwrap().unwrap_err();
        assert!(told.contains("default/lost is not captured") && told.contains("no network namespace"), "{told}");
        assert!((Duration::from_secs(3)..Duration::from_secs(20)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    });
    assert_eq!(cluster.kept(), ["web.json"]);
}

#[test]
fn many_pods_at_once_are_all_admitted() {
    let mut cluster = Cluster::new(&[]);
    let pods: Vec<Pod> = (0..40).map(|_| cluster.node.routed()).collect();
    (0..pods.len()).for_each(|number| cluster.meshed(&format!("web-{number}"), json!({})));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let requests: Vec<_> = pods
            .iter()
            .enumerate()
            .map(|(number, pod)| {
                let cluster = &cluster;
                scope.spawn(move || cluster.admit(&format!("web-{number}"), pod))
            })
            .collect();
        for request in requests {
            assert_eq!(request.join().unwrap(), Ok(None));
        }
    });
    println!("40 pods at once: {:?}", begun.elapsed());
    assert_eq!(cluster.kept().len(), 40);
}

#[test]
fn release_is_idempotent_and_only_of_its_own_attachment() {
    let mut cluster = Cluster::new(&[]);
    let pod = cluster.node.routed();
    cluster.meshed("web", json!({}));
    cluster.request(Admission::Release(attachment("web"))).unwrap();
    cluster.admit("web", &pod).unwrap();
    // A second interface of the pod comes and goes.
    let second = Attachment { interface: "net1".into(), ..attachment("web") };
    let request = Applicant { attachment: second.clone(), ..applicant("web", &pod) };
    assert!(matches!(cluster.request(Admission::Admit(request)), Ok(Answer::Admitted(_))));
    cluster.request(Admission::Release(second)).unwrap();
    cluster.request(Admission::Verify(attachment("web"))).unwrap();
    assert!(cluster.node.is_captured("web"));
    for _ in 0..2 {
        assert_eq!(cluster.request(Admission::Release(attachment("web"))), Ok(Answer::Done));
    }
    cluster.node.wait(|node| node.capture("web").is_none());
    let told = cluster.request(Admission::Verify(attachment("web"))).unwrap_err();
    assert!(told.contains("was never admitted, or has been released"), "{told}");
}

#[test]
fn what_the_runtime_does_not_know_is_collected() {
    let mut cluster = Cluster::new(&[]);
    let pods = [(); 2].map(|()| cluster.node.routed());
    for (name, pod) in ["one", "two"].iter().zip(&pods) {
        cluster.meshed(name, json!({}));
        cluster.admit(name, pod).unwrap();
    }
    let collect = |network: &str| Admission::Collect { network: network.into(), valid: vec![attachment("two")] };
    cluster.request(collect("other")).unwrap();
    assert_eq!(cluster.kept(), ["one.json", "two.json"]);
    cluster.request(collect("net")).unwrap();
    assert_eq!(cluster.kept(), ["two.json"]);
    cluster.node.wait(|node| node.capture("one").is_none() && node.is_captured("two"));
}

/// The agent is killed, pods end, and a new agent starts: it knows who is left.
#[test]
fn a_new_agent_knows_the_pods_that_are_left() {
    let mut cluster = Cluster::new(&[]);
    let [stays, ends, peer] = [(); 3].map(|()| cluster.node.routed());
    let _program = Greeter::program(&peer, 8080);
    let _proxy = Greeter::proxy(&stays);
    for (name, pod) in [("stays", &stays), ("ends", &ends)] {
        cluster.meshed(name, json!({}));
        cluster.admit(name, pod).unwrap();
    }
    let to = SocketAddr::new(peer.v4, 8080);
    let met = || greeted(&stays, ROOT, to).unwrap().listener;
    cluster.node.kill();
    drop(ends);
    assert_eq!(met(), OUTBOUND, "without an agent, too");
    let told = cluster.admit("stays", &stays).unwrap_err();
    assert!(told.contains("no agent answers"), "{told}");
    cluster.start(&[]);
    assert_eq!((cluster.kept(), met()), (vec!["stays.json".to_string()], OUTBOUND));
    cluster.request(Admission::Verify(attachment("stays"))).unwrap();
    assert!(cluster.node.check().is_well(), "{:?}", cluster.node.check());
    // The runtime asks again for the same sandbox.
    assert_eq!(cluster.admit("stays", &stays), Ok(None));
}

/// While nothing is attached, nothing is in force: no pod is admitted, and the runtime is told so.
#[test]
fn an_agent_that_is_not_ready_says_so() {
    let (node, world) = (Node::new(), World::new());
    let mut cluster = Cluster { world, server: None, node };
    cluster.spawn(&[]);
    cluster.node.wait(|node| node.status().is_ok());
    let told = cluster.request(Admission::Ready).unwrap_err();
    assert!(told.contains("has not attached its programs yet"), "{told}");
    cluster.server = Some(Server::start(&cluster.world, &cluster.node.testbed.node));
    cluster.node.wait_until_attached();
    assert_eq!(cluster.request(Admission::Ready), Ok(Answer::Done));
}

#[test]
fn an_agent_without_the_option_admits_nobody() {
    let mut node = Node::with_agent();
    let pod = node.routed();
    for request in [Admission::Ready, Admission::Admit(applicant("web", &pod)), Admission::Release(attachment("web"))] {
        let told = node.ask(Question::Admission(request)).unwrap_err();
        assert!(told.contains("start it with --admissions"), "{told}");
    }
}
