//! Failures, and programs of others.

use crate::agent::Node;
use crate::yaml;
use libbpf_rs::{Link, ObjectBuilder};
use sidestep_testkit::greeter::{Greeter, INBOUND, OUTBOUND, PROXY, ROOT, greeted};
use sidestep_testkit::tables::{Filler, table};
use std::fs::File;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn a_pod_for_which_there_is_no_room_is_captured_when_there_is() {
    let mut node = Node::with_agent();
    let (pods, other) = ([node.routed(), node.routed()], node.routed());
    let _proxies = pods.each_ref().map(Greeter::proxy);
    node.captured("a", &pods[0]);
    node.wait(|node| node.is_captured("a") && node.check().is_well());
    let filler = Filler::new(table(&node.pins(), "pods"));
    node.captured("b", &pods[1]);
    let trouble = |node: &Node| node.capture("b").map(|b| b.troubles.join("; ")).unwrap_or_default();
    node.wait(|node| trouble(node).contains("map pods: put: the table is full, it has room for 32768 entries"));
    let inbound = |n: usize| greeted(&other, ROOT, SocketAddr::new(pods[n].v4, 9999));
    assert!(inbound(0).unwrap().listener == INBOUND && inbound(1).is_err());
    // A change of a captured pod's rules needs no room.
    node.file("a.yaml", &yaml::annotated("a", pods[0].namespace.name(), "excludeInboundPorts", "9999"));
    node.wait(|_| inbound(0).is_err());
    drop(filler);
    node.wait(|node| node.is_captured("b") && inbound(1).is_ok());
    node.wait(|node| node.check().is_well());
}

#[test]
fn rules_for_which_there_is_no_room_come_into_force_when_there_is() {
    let mut node = Node::with_agent();
    let (pod, other) = (node.routed(), node.routed());
    let (_proxy, _program) = (Greeter::proxy(&pod), Greeter::program(&other, 8080));
    node.captured("a", &pod);
    node.wait(|node| node.is_captured("a") && node.check().is_well());
    let met = || greeted(&pod, ROOT, SocketAddr::new(other.v4, 8080)).unwrap().listener;
    let filler = Filler::new(table(&node.pins(), "sets"));
    node.file("a.yaml", &yaml::annotated("a", pod.namespace.name(), "excludeOutboundPorts", "8080"));
    let trouble = |node: &Node| node.capture("a").map(|a| a.troubles.join("; ")).unwrap_or_default();
    node.wait(|node| trouble(node).contains("map sets: put 6 entries: the table is full"));
    // Until then the old rules hold.
    assert!(node.is_captured("a") && met() == OUTBOUND);
    drop(filler);
    node.wait(|node| node.check().is_well());
    assert_eq!(met(), 8080);
}

#[test]
fn what_cannot_be_told_to_the_proxy_is_refused_and_never_let_past() {
    let mut node = Node::with_agent();
    let (pod, other) = (node.routed(), node.routed());
    let (_proxy, _program) = (Greeter::proxy(&pod), Greeter::program(&other, 8080));
    node.captured("a", &pod);
    node.wait(|node| node.is_captured("a"));
    let to = SocketAddr::new(other.v4, 8080);
    let filler = Filler::new(table(&node.pins(), "pending"));
    let refused = greeted(&pod, ROOT, to).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset), "{refused}");
    assert_eq!(greeted(&pod, PROXY, to).unwrap().listener, 8080);
    let count = node.captures().reasons.into_iter().find(|count| count.reason == "orig-dst-not-stored").unwrap().count;
    assert!(count >= 1);
    drop(filler);
    assert_eq!(greeted(&pod, ROOT, to).unwrap().listener, OUTBOUND);
}

#[test]
fn without_a_proxy_nothing_comes_in_unless_that_is_wanted() {
    let mut node = Node::with_agent();
    let (pod, other) = (node.routed(), node.routed());
    let _program = Greeter::program(&pod, 8080);
    node.captured("a", &pod);
    node.wait(|node| node.is_captured("a"));
    let inbound = || greeted(&other, ROOT, SocketAddr::new(pod.v4, 8080)).map(|seen| seen.listener);
    let outbound = || greeted(&pod, ROOT, SocketAddr::new(other.v4, 8080)).map(|seen| seen.listener);
    for refused in [inbound(), outbound()] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
    node.file("a.yaml", &yaml::capture("a", pod.namespace.name(), "  proxy: {withoutProxy: pass}\n"));
    node.wait(|_| inbound().is_ok_and(|listener| listener == 8080));
    // As soon as the proxy listens it gets all connections.
    let _proxy = Greeter::proxy(&pod);
    assert_eq!((inbound().unwrap(), outbound().unwrap()), (INBOUND, OUTBOUND));
}

/// Without CAP_SYS_ADMIN no namespace can be entered, but Services are balanced.
#[test]
fn an_agent_that_may_not_capture_says_so_and_balances() {
    let mut node = Node::new();
    let pod = node.routed();
    node.captured("a", &pod);
    node.web([&pod]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all,+bpf,+net_admin,+perfmon", "--inh-caps=-all"]);
    command.arg(node.command().get_program()).args(node.command().get_args()).process_group(0);
    let services = node.services();
    node.spawn_as(command, &["--config", services.to_str().unwrap()]);
    node.wait_until_attached();
    node.wait(|node| node.capture("a").is_some_and(|a| !a.troubles.is_empty()));
    assert!(!node.is_captured("a") && node.show("web").unwrap().ports[0].backend_count == 1);
    assert!(!node.check().is_well());
    assert!(node.stop().success());
}

// --- programs of others -----------------------------------------------------------------------------------------------

/// Programs that permit everything.
const FOREIGN: &str = "
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC(\"license\") = \"GPL\";
SEC(\"cgroup/connect4\") int foreign_connect4(void *ctx) { return 1; }
SEC(\"cgroup/connect6\") int foreign_connect6(void *ctx) { return 1; }
SEC(\"cgroup/getsockopt\") int foreign_getsockopt(void *ctx) { return 1; }
SEC(\"sockops\") int foreign_sockops(void *ctx) { return 1; }
SEC(\"sk_lookup\") int foreign_lookup(void *ctx) { return 1; }
";

/// Attaches them; they stay attached while the links are held.
fn strangers(node: &Node, namespace: &Path) -> Vec<Link> {
    let (source, object) = (node.directory.path().join("foreign.c"), node.directory.path().join("foreign.o"));
    std::fs::write(&source, FOREIGN).unwrap();
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-target", "bpf", "-c"]).arg(&source).arg("-o").arg(&object);
    assert!(clang.status().unwrap().success());
    let open = ObjectBuilder::default().open_file(&object).unwrap();
    assert_eq!(open.progs().count(), 5);
    let loaded = open.load().unwrap();
    let (cgroup, netns) = (File::open(node.testbed.cgroup.path()).unwrap(), File::open(namespace).unwrap());
    let attach = |program: libbpf_rs::ProgramMut| match program.name().to_string_lossy().as_ref() {
        "foreign_lookup" => program.attach_netns(netns.as_raw_fd()).unwrap(),
        _ => program.attach_cgroup(cgroup.as_raw_fd()).unwrap(),
    };
    loaded.progs_mut().map(attach).collect()
}

#[test]
fn strangers_before_and_after_disturb_nothing() {
    let mut node = Node::new();
    let (pod, other) = (node.routed(), node.routed());
    let (_proxy, _program) = (Greeter::proxy(&pod), Greeter::program(&other, 8080));
    let before = strangers(&node, &pod.namespace.path());
    node.start();
    node.captured("a", &pod);
    node.wait(|node| node.is_captured("a"));
    let works = || {
        let to = SocketAddr::new(other.v4, 8080);
        let seen = greeted(&pod, ROOT, to).unwrap();
        assert_eq!((seen.listener, seen.original), (OUTBOUND, Some(to)));
        let to = SocketAddr::new(pod.v4, 9999);
        let seen = greeted(&other, ROOT, to).unwrap();
        assert_eq!((seen.listener, seen.original), (INBOUND, Some(to)));
    };
    works();
    let after = strangers(&node, &pod.namespace.path());
    works();
    drop(before);
    works();
    // Our programs are removed, theirs stay.
    assert!(node.command().arg("--detach").output().unwrap().status.success());
    assert!(node.wait_for_end().success());
    assert_eq!(after.iter().filter(|link| link.info().is_ok_and(|info| info.prog_id > 0)).count(), 5);
    assert_eq!(greeted(&pod, ROOT, SocketAddr::new(other.v4, 8080)).unwrap().listener, 8080);
}
