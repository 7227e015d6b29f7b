//! Connections work on however agents end.

use crate::agent::{Load, Node, VIP, at, dial, server};
use sidestep_agent_api::Question;
use sidestep_testkit::Pod;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

fn node_with_web() -> (Node, Vec<Pod>, Vec<crate::agent::Server>) {
    let mut node = Node::with_agent();
    let pods: Vec<Pod> = (0..3).map(|_| node.testbed.pod()).collect();
    let servers = pods.iter().map(server).collect();
    node.web(&pods);
    node.wait(|node| node.show("web").is_ok_and(|service| !service.ports.is_empty()));
    (node, pods, servers)
}

#[test]
fn killed_and_exchanged_agents_cost_no_connection() {
    let (mut node, _pods, _servers) = node_with_web();
    let clients = [node.testbed.pod(), node.testbed.pod()];
    let load = Load::start(&clients);
    load.wait_for(50);
    for round in 0..5 {
        if round % 2 == 0 {
            node.kill()
        } else {
            assert!(node.stop().success())
        }
        load.wait_for(50);
        node.start();
        load.wait_for(50);
        assert!(node.check().is_well());
    }
    // Killed in the middle of the start.
    for _ in 0..5 {
        node.kill();
        let services = node.services();
        node.spawn(&["--config", services.to_str().unwrap()]);
        load.wait_for(10);
    }
    node.kill();
    node.start();
    load.wait_for(50);
    let (failures, done) = load.stop();
    assert!(failures.is_empty(), "{} of {done}: {:?}", failures.len(), failures.first());
    assert!(node.check().is_well());
}

#[test]
fn a_new_agent_goes_on_counting_and_removes_what_went_meanwhile() {
    let (mut node, pods, _servers) = node_with_web();
    let client = node.testbed.pod();
    client.namespace.run(|| (0..7).for_each(|_| assert!(dial(at(VIP, 80)).is_ok())));
    assert!(node.stop().success());
    node.file("other.yaml", &crate::yaml::service("other", "10.96.0.11", 80, ""));
    node.web([&pods[0]]);
    // Everything is as the old agent left it.
    assert!(
        client
            .namespace
            .run(|| dial(at("10.96.0.11", 80)))
            .is_err_and(|e| e.kind() != std::io::ErrorKind::ConnectionRefused)
    );
    node.start();
    let web = node.show("web").unwrap().ports.remove(0);
    assert_eq!((web.counters.picks, web.backend_count), (7, 1));
    assert!(
        client
            .namespace
            .run(|| dial(at("10.96.0.11", 80)))
            .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    );
    assert!(node.stop().success());
    std::fs::remove_file(node.services().join("other.yaml")).unwrap();
    node.start();
    node.wait(|node| node.check().is_well());
    assert!(
        client
            .namespace
            .run(|| dial(at("10.96.0.11", 80)))
            .is_err_and(|e| e.kind() != std::io::ErrorKind::ConnectionRefused)
    );
}

/// bpftool(8)'s output.
fn bpftool(words: &[&str]) -> (bool, String) {
    let output = Command::new("/usr/sbin/bpftool").arg("-j").args(words).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// Kind and id of each program and map that is pinned or attached, by which they can be looked up in the kernel.
fn traces(node: &Node) -> Vec<(&'static str, String)> {
    let id = |text: &str| text.split("\"id\":").nth(1).and_then(|rest| rest.split([',', '}']).next()).map(String::from);
    let pinned = std::fs::read_dir(node.pins().join(format!("services/maps-{}", sidestep_ebpf::layout::VERSION)))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let maps = pinned.map(|path| ("map", id(&bpftool(&["map", "show", "pinned", path.to_str().unwrap()]).1).unwrap()));
    let attached = bpftool(&["cgroup", "show", node.testbed.cgroup.path().to_str().unwrap()]).1;
    let programs = attached.split('{').filter_map(id).map(|id| ("prog", id));
    maps.chain(programs).collect()
}

/// The Service programs, and the two packet programs, which are attached once there is nothing else to do.
fn all_traces(node: &Node) -> Vec<(&'static str, String)> {
    let is_program = |(kind, _): &&(&str, String)| *kind == "prog";
    for _ in 0..500 {
        let found = traces(node);
        if found.iter().filter(is_program).count() == PROGRAMS {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("there are not {PROGRAMS} programs: {:?}", traces(node));
}

const PROGRAMS: usize = 13 + 2;

/// The kernel frees programs and maps some milliseconds after their last use.
fn wait_until_gone(traces: &[(&str, String)]) {
    for _ in 0..500 {
        if traces.iter().all(|(kind, id)| !bpftool(&[kind, "show", "id", id]).0) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("some of them are still there: {traces:?}");
}

#[test]
fn detaching_leaves_nothing() {
    let (mut node, _pods, _servers) = node_with_web();
    let made = all_traces(&node);
    assert!(made.iter().filter(|(kind, _)| *kind == "map").count() >= 10, "{made:?}");
    // While it runs ...
    let detach = |node: &Node| node.command().arg("--detach").output().unwrap();
    let done = detach(&node);
    assert!(done.status.success(), "{done:?}");
    assert!(node.wait_for_end().success());
    wait_until_gone(&made);
    assert!(!node.pins().exists() && !node.socket().exists());
    // ... after it was killed ...
    node.start();
    let made = traces(&node);
    node.kill();
    assert!(!traces(&node).is_empty());
    assert!(detach(&node).status.success());
    wait_until_gone(&made);
    assert!(!node.pins().exists() && !node.socket().exists());
    // ... and when nothing is installed.
    assert!(detach(&node).status.success());
}

#[test]
fn a_second_agent_is_told_of_the_first() {
    let (node, _pods, _servers) = node_with_web();
    let second = node.command().arg("--config").arg(node.services()).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("an agent runs already with the pins"), "{said}");
    assert!(node.check().is_well());
}

#[test]
fn without_privileges_it_says_what_it_lacks() {
    let node = Node::new();
    let mut command = node.command();
    let unprivileged = command.arg("--config").arg("/").uid(65534).gid(65534).stdout(Stdio::null()).output();
    // Other users may have no access to the build directory.
    let done = match unprivileged {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let copy = std::env::temp_dir().join(format!("sidestep-agent-{}", std::process::id()));
            std::fs::copy(env!("CARGO_BIN_EXE_sidestep-agent"), &copy).unwrap();
            let done = Command::new(&copy).args(["--config", "/"]).uid(65534).gid(65534).output().unwrap();
            std::fs::remove_file(copy).unwrap();
            done
        }
        done => done.unwrap(),
    };
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success());
    assert!(said.contains("this process has no CAP_BPF: run it as root") && said.contains("CAP_NET_ADMIN"), "{said}");
}

/// Aborting sockets in other namespaces needs more capabilities: the agent does without, and says so.
#[test]
fn two_capabilities_are_enough_to_balance() {
    let mut node = Node::new();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let _server = server(&pod);
    node.web([&pod]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all,+bpf,+net_admin", "--inh-caps=-all"]);
    command.arg(node.command().get_program()).args(node.command().get_args());
    let services = node.services();
    node.spawn_as(command, &["--config", services.to_str().unwrap()]);
    node.wait_until_attached();
    assert_eq!(client.namespace.run(|| dial(at(VIP, 80)).unwrap()), pod.v4);
    node.web([]);
    node.wait(|_| client.namespace.run(|| dial(at(VIP, 80))).is_err());
    assert!(node.stop().success());
    // The next agent exchanges the programs.
    node.web([&pod]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all,+bpf,+net_admin", "--inh-caps=-all"]);
    command.arg(node.command().get_program()).args(node.command().get_args());
    node.spawn_as(command, &["--config", services.to_str().unwrap()]);
    node.wait(|node| node.log().matches("balancing").count() == 2);
    assert_eq!(client.namespace.run(|| dial(at(VIP, 80)).unwrap()), pod.v4);
    assert!(node.stop().success());
}

/// Half of the Services would be worse than none: nothing is attached until the source has reported everything.
#[test]
fn an_agent_whose_source_says_nothing_attaches_nothing() {
    let mut node = Node::new();
    let nowhere = node.kubeconfig(1); // a port without a server
    node.spawn(&["--kubeconfig", nowhere.to_str().unwrap()]);
    node.wait(|node| node.status().is_ok_and(|status| status.source.troubles.iter().any(|t| t.place == "Services")));
    let status = node.status().unwrap();
    assert!(!status.attached && !status.source.listed);
    let shown =
        Command::new("/usr/sbin/bpftool").args(["cgroup", "show"]).arg(node.testbed.cgroup.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout).lines().count(), 0);
    assert!(node.stop().success());
    let _ = node.ask(Question::Status).unwrap_err();
}
