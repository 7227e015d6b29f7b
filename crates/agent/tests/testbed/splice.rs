//! The command `sidestep splice`.

use crate::agent::{Node, dial, server};
use std::net::SocketAddr;
use std::process::{Command, Output};

fn splice(node: &Node, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-agent"));
    command.arg("splice").args(words).arg("--pins").arg(node.pins()).output().unwrap()
}

fn must(node: &Node, words: &[&str]) -> String {
    let done = splice(node, words);
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn state(node: &Node) -> serde_json::Value {
    serde_json::from_str(&must(node, &["status", "--json"])).unwrap()
}

#[test]
fn it_is_installed_paused_and_removed() {
    let node = Node::new();
    let cgroup = node.testbed.cgroup.path().to_str().unwrap();
    assert_eq!(state(&node)["state"], "off");
    assert_eq!(must(&node, &["status"]).trim(), "splicing is off: nothing is installed");
    must(&node, &["--port", "5432,8000-8010", "--port", "80", "--cgroup", cgroup, "--netns", node.testbed.node.name()]);
    let shown = state(&node);
    assert_eq!((&shown["state"], shown["ports"].to_string()), (&"on".into(), r#"["80","5432","8000-8010"]"#.into()));
    assert_eq!(shown["network_namespaces"].as_array().unwrap().len(), 1);
    must(&node, &["--pause"]);
    assert_eq!(state(&node)["state"], "paused");
    must(&node, &["--resume"]);
    assert_eq!(state(&node)["state"], "on");
    assert!(must(&node, &["status"]).contains("ports        80, 5432, 8000-8010"));
    // New ports replace the old ones.
    must(&node, &["--port", "9000", "--cgroup", cgroup]);
    assert_eq!(state(&node)["ports"].to_string(), r#"["9000"]"#);
    must(&node, &["--remove"]);
    assert_eq!(state(&node)["state"], "off");
    assert!(!node.pins().exists());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let node = Node::new();
    for words in
        [&["--port", "0"][..], &["--port", "90-80"], &[], &["--pause", "--remove"], &["--pause", "--port", "1"]]
    {
        assert_eq!(splice(&node, words).status.code(), Some(2), "{words:?}");
    }
    let paused = splice(&node, &["--pause"]);
    assert_eq!(paused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&paused.stderr).contains("sidestep splice: splice: it is not installed"));
    assert!(splice(&node, &["--port", "80", "--cgroup", "/proc"]).status.code() == Some(1));
    assert_eq!(state(&node)["state"], "off");
    assert!(!node.pins().exists());
}

#[test]
fn an_agent_with_the_same_pins_has_it_in_its_metrics() {
    let mut node = Node::with_agent();
    assert!(!node.metrics().contains("sidestep_splice"), "nothing is installed");
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let _server = server(&pod);
    must(&node, &["--port", "8080", "--cgroup", node.testbed.cgroup.path().to_str().unwrap()]);
    client.namespace.run(|| assert!(dial(SocketAddr::new(pod.v4, 8080)).is_ok()));
    let metrics = node.metrics();
    assert!(metrics.contains("\nsidestep_splice_paused 0\n") && metrics.contains("\nsidestep_spliced_connections 0\n"));
    let shown = state(&node);
    let reasons = shown["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason["count"].as_u64() > Some(0)), "{shown}");
    for reason in reasons {
        let line = format!("sidestep_splice_decisions_total{{reason={}}} {}\n", reason["name"], reason["count"]);
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    must(&node, &["--remove"]);
    node.wait(|node| !node.metrics().contains("sidestep_splice"));
}
