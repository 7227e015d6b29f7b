//! An armed node: no pod communicates before its rules are in force, whether an agent runs or not.

use super::world::{ONLY_WEB, call, is_refused};
use crate::agent::{Node, Server, dial, server};
use crate::yaml;
use sidestep_testkit::Pod;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// An armed node, on which `db` accepts only `web`.
struct World {
    _servers: Vec<Server>,
    web: Pod,
    db: Pod,
    node: Node,
}

impl World {
    fn new(options: &[&str]) -> World {
        let mut node = Node::new();
        let [web, db] = [(); 2].map(|()| node.routed());
        for (name, pod) in [("web", &web), ("db", &db)] {
            node.file(&format!("pod-{name}.yaml"), &yaml::labelled(name, pod, &format!("{{app: {name}}}")));
        }
        node.file("policy.yaml", &yaml::policy("db", ONLY_WEB));
        let mut world = World { _servers: vec![server(&db), server(&web)], web, db, node };
        world.start(options);
        world
    }

    fn start(&mut self, options: &[&str]) {
        let services = self.node.services();
        self.node.start_with(&[&["--config", services.to_str().unwrap()], options].concat());
    }

    fn told_of(&self, name: &str, pod: &Pod) {
        self.node.file(&format!("pod-{name}.yaml"), &yaml::labelled(name, pod, &format!("{{app: {name}}}")));
    }
}

fn is_barred(from: &Pod, to: &Pod) -> bool {
    matches!(call(from, to), Err(error) if error.kind() == ErrorKind::NetworkUnreachable)
}

/// Agents are killed, a pod starts, and new agents start: at no moment does the pod reach a forbidden one.
#[test]
fn a_pod_that_starts_without_an_agent_reaches_nobody() {
    let mut world = World::new(&["--arm"]);
    assert!(call(&world.web, &world.db).is_ok());
    world.node.kill();
    let late = world.node.routed();
    let (over, tried, reached) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (path, to) = (late.namespace.path(), SocketAddr::new(world.db.v4, 8080));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sidestep_testkit::enter(&path);
            while !over.load(Ordering::Relaxed) {
                let counter = if dial(to).is_ok() { &reached } else { &tried };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        let wait_for = |more: u64| {
            let goal = tried.load(Ordering::Relaxed) + more;
            while tried.load(Ordering::Relaxed) + reached.load(Ordering::Relaxed) < goal {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait_for(500);
        assert!(is_barred(&late, &world.web), "whom it may call, too");
        // Some agents are killed during their start; the last one runs on.
        let services = world.node.services();
        for pause in [0, 20, 40, 80] {
            world.node.spawn(&["--config", services.to_str().unwrap(), "--arm"]);
            std::thread::sleep(Duration::from_millis(pause));
            world.node.kill();
        }
        world.told_of("late", &late);
        world.start(&["--arm"]);
        world.node.wait(|_| call(&late, &world.web).is_ok());
        wait_for(500);
        over.store(true, Ordering::Relaxed);
    });
    let (tried, reached) = (tried.into_inner(), reached.into_inner());
    println!("{tried} calls in vain");
    assert_eq!(reached, 0, "of {tried}");
    assert!(is_refused(&late, &world.db) && call(&world.web, &world.db).is_ok());
    assert!(world.node.check().is_well(), "{:?}", world.node.check());
}

#[test]
fn who_is_there_before_the_agent_is_barred_unless_it_is_known_or_exempt() {
    let mut node = Node::new();
    let [known, exempt, unknown] = [(); 3].map(|()| node.routed());
    let _servers = [server(&known), server(&unknown)];
    node.file("known.yaml", &yaml::labelled("known", &known, "{app: known}"));
    let services = node.services();
    let options = ["--config", services.to_str().unwrap(), "--arm", "--exempt", exempt.namespace.name()];
    node.start_with(&options);
    assert!(call(&exempt, &known).is_ok() && is_barred(&unknown, &known));
    assert_eq!(dial_in(&unknown, "127.0.0.1:8080"), Some(unknown.v4), "the loopback is its own");
    // The node's own programs reach every pod.
    let probe = SocketAddr::new(unknown.v4, 8080);
    assert_eq!(node.testbed.node.run(|| dial(probe)).unwrap(), unknown.v4);
    let check = node.check();
    let own = unknown.namespace.path().display().to_string();
    assert!(check.is_well() && check.admitted == Some(2) && check.barred.contains(&own), "{check:?}");
    assert_eq!(node.policies().admitted, Some(2));
    assert!(node.metrics().contains("sidestep_armed 1") && node.metrics().contains("sidestep_admitted_namespaces 2"));
    assert!(node.counted("not-admitted-out") > 0);
    // A document makes the pod known; without the document it is not admitted any more.
    node.file("unknown.yaml", &yaml::labelled("unknown", &unknown, "{app: unknown}"));
    node.wait(|_| call(&unknown, &known).is_ok());
    std::fs::remove_file(node.services().join("unknown.yaml")).unwrap();
    node.wait(|_| is_barred(&unknown, &known));
}

fn dial_in(pod: &Pod, to: &str) -> Option<std::net::IpAddr> {
    let to: SocketAddr = to.parse().unwrap();
    pod.namespace.run(|| dial(to)).ok()
}

#[test]
fn an_agent_without_the_option_takes_it_back_and_so_does_detaching() {
    let mut world = World::new(&["--arm"]);
    let unknown = world.node.routed();
    assert!(is_barred(&unknown, &world.web));
    assert!(world.node.stop().success());
    assert!(is_barred(&unknown, &world.web), "an agent's end changes nothing");
    world.start(&[]);
    world.node.wait(|_| call(&unknown, &world.web).is_ok());
    assert!(world.node.log().contains("is not armed any more") && world.node.check().admitted.is_none());
    assert!(is_refused(&unknown, &world.db), "policies are in force all the same");
    assert!(world.node.stop().success());
    world.start(&["--arm"]);
    world.node.wait(|_| is_barred(&unknown, &world.web));
    assert!(world.node.command().arg("--detach").output().unwrap().status.success());
    assert!(world.node.wait_for_end().success());
    assert!(call(&unknown, &world.web).is_ok());
}

/// A captured pod is admitted only once its capture is in force.
#[test]
fn a_pod_that_cannot_be_captured_is_not_admitted() {
    let mut world = World::new(&["--arm"]);
    let pod = world.node.routed();
    // Programs are attached to another cgroup than the pod's.
    let above = world.node.testbed.cgroup.path().parent().unwrap().display().to_string();
    let outside = yaml::capture("pod", pod.namespace.name(), &format!("  cgroup: {above}\n"));
    world.node.file("pod.yaml", &outside);
    world.node.wait(|node| node.capture("pod").is_some_and(|capture| !capture.troubles.is_empty()));
    assert!(is_barred(&pod, &world.web));
    world.node.file("pod.yaml", &yaml::labelled("pod", &pod, "{app: pod}"));
    world.node.wait(|_| call(&pod, &world.web).is_ok());
}
