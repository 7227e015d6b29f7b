//! The capabilities that the agent has, and those that it needs.

use crate::agent::{Node, VIP, at, dial, server};
use crate::yaml;
use std::process::{Child, Command};

/// capabilities(7): bit, and the name for setpriv(1).
const NEEDED: [(u32, &str); 6] =
    [(11, "net_broadcast"), (12, "net_admin"), (19, "sys_ptrace"), (21, "sys_admin"), (38, "perfmon"), (39, "bpf")];

/// Starts the agent with only these capabilities.
fn spawn_with(node: &mut Node, capabilities: &[&str]) {
    let sets: Vec<String> = capabilities.iter().map(|name| format!("+{name}")).collect();
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set=-all,{}", sets.join(","))).arg("--inh-caps=-all");
    command.arg(node.command().get_program()).args(node.command().get_args());
    let services = node.services();
    node.spawn_as(command, &["--config", services.to_str().unwrap()]);
}

fn all_but(name: &str) -> Vec<&'static str> {
    NEEDED.iter().map(|(_, known)| *known).filter(|known| *known != name).collect()
}

#[test]
fn every_thread_keeps_six_capabilities_and_no_way_to_more() {
    let node = Node::with_agent();
    node.metrics(); // makes sure that late threads have started
    let kept: u64 = NEEDED.iter().map(|(bit, _)| 1 << bit).sum();
    let threads = std::fs::read_dir(format!("/proc/{}/task", node.status().unwrap().pid)).unwrap();
    let threads: Vec<_> = threads.map(|thread| thread.unwrap().path()).collect();
    assert!(threads.len() > 5, "{threads:?}");
    for thread in threads {
        let text = std::fs::read_to_string(thread.join("status")).unwrap();
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
        let bits = |key: &str| u64::from_str_radix(value(key), 16).unwrap();
        for (key, expected) in [("CapPrm:", kept), ("CapEff:", kept), ("CapBnd:", kept), ("CapInh:", 0), ("CapAmb:", 0)]
        {
            assert_eq!(bits(key), expected, "{key} of\n{text}");
        }
        assert_eq!((value("NoNewPrivs:"), value("Seccomp:")), ("1", "2"), "{text}");
    }
}

/// A process in the pod, of another user than the agent's. Only by this process can the pod's namespace be found.
fn somebody(pod: &sidestep_testkit::Pod) -> Child {
    pod.namespace.run(|| Command::new("setpriv").args(["--reuid=65534", "sleep", "60"]).spawn().unwrap())
}

#[test]
fn six_are_enough_and_each_is_for_something() {
    let mut node = Node::new();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let _server = server(&pod);
    node.web([&pod]);
    let mut somebody = somebody(&pod);
    let netns = format!("/proc/{}/ns/net", somebody.id());
    node.file("pod.yaml", &yaml::annotated("pod", &netns, "includeInboundPorts", ""));
    let troubles = |node: &Node| node.capture("pod").map(|capture| capture.troubles.concat()).unwrap_or_default();
    // With all of them.
    spawn_with(&mut node, &NEEDED.map(|(_, name)| name));
    node.wait_until_attached();
    assert_eq!(client.namespace.run(|| dial(at(VIP, 80)).unwrap()), pod.v4);
    node.wait(|node| node.is_captured("pod"));
    assert!(node.stop().success());
    assert!(!node.log().contains("not permitted") && !node.log().contains("CAP_"), "{}", node.log());
    // Without one of these a pod is not found, or not entered, or changes of its routes go unnoticed.
    for (lacking, is_captured) in [("sys_ptrace", false), ("sys_admin", false), ("net_broadcast", true)] {
        assert!(node.command().arg("--detach").status().unwrap().success());
        spawn_with(&mut node, &all_but(lacking));
        node.wait_until_attached();
        node.wait(|node| !troubles(node).is_empty());
        assert!(troubles(&node).contains("ermi"), "{lacking}: {}", troubles(&node));
        assert_eq!(node.is_captured("pod"), is_captured, "{lacking}");
        assert_eq!(client.namespace.run(|| dial(at(VIP, 80)).unwrap()), pod.v4, "Services go on");
        assert!(node.stop().success());
    }
    somebody.kill().unwrap();
    somebody.wait().unwrap();
}

/// CAP_SYS_ADMIN implies CAP_BPF and CAP_PERFMON. Without it, they are needed themselves.
#[test]
fn what_is_missing_is_named() {
    let mut node = Node::new();
    for (given, said) in [
        (&["net_admin", "perfmon", "sys_ptrace"][..], "this process has no CAP_BPF"),
        (&["bpf", "perfmon", "sys_ptrace"], "this process has no CAP_NET_ADMIN"),
    ] {
        spawn_with(&mut node, given);
        assert!(!node.wait_for_end().success());
        assert!(node.log().contains(said), "{said} is not in\n{}", node.log());
    }
    assert!(!node.log().contains("no CAP_PERFMON"));
    spawn_with(&mut node, &["bpf", "net_admin"]);
    node.wait_until_attached();
    assert!(node.log().contains("no CAP_PERFMON: the kernel takes twice as long"), "{}", node.log());
}

/// As in its systemd unit: everything is read-only except the BPF file system and the runtime directory.
#[test]
fn it_writes_to_two_places_only() {
    let mut node = Node::new();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let _server = server(&pod);
    node.web([&pod]);
    let mut command = Command::new("unshare");
    let confine = "mount --make-rprivate /; mount --bind \"$1\" \"$1\"; mount -o remount,bind,ro /; shift; exec \"$@\"";
    let runtime = node.directory.path().join("run");
    std::fs::create_dir(&runtime).unwrap();
    command.args(["--mount", "sh", "-ec", confine, "sh"]).arg(&runtime);
    command.arg(node.command().get_program());
    command.arg("--pins").arg(node.pins()).arg("--socket").arg(runtime.join("agent.sock"));
    let services = node.services();
    node.spawn_as(command, &["--config", services.to_str().unwrap()]);
    node.wait(|_| client.namespace.run(|| dial(at(VIP, 80))).is_ok_and(|who| who == pod.v4));
    assert!(runtime.join("agent.sock").exists());
    assert!(node.stop().success());
    assert!(!node.log().contains("Read-only"), "{}", node.log());
}
