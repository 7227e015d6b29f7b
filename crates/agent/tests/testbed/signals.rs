//! SIGTERM ends the agent whatever it is doing. SIGHUP makes it read its configuration again, and never ends it.

use crate::agent::{Node, VIP};
use crate::api_server::{self, SERVICES, Server, World, service};
use crate::yaml;
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn while_programs_are_loaded_it_ends_at_once() {
    let mut node = Node::new();
    node.file("web.yaml", &yaml::service("web", VIP, 80, ""));
    for _ in 0..3 {
        let services = node.services();
        node.spawn(&["--config", services.to_str().unwrap()]);
        // From here on the kernel verifies programs for half a second or more.
        let before = node.log().matches("reading").count();
        node.wait(|node| node.log().matches("reading").count() > before || node.log().ends_with("node\"\n"));
        let begun = Instant::now();
        assert!(node.stop().success());
        println!("ended {:.1?} after SIGTERM", begun.elapsed());
        assert!(!node.socket().exists());
    }
    assert_eq!(node.log().matches("ended at once").count(), 3, "{}", node.log());
    assert!(!node.log().contains("balancing"), "{}", node.log());
    // Nothing hinders the next agent.
    node.start();
    assert!(node.check().is_well());
}

/// Writes the settings of an agent that reads the testbed's directory, with additions.
fn settings(node: &Node, more: &str) -> std::path::PathBuf {
    let path = node.directory.path().join("agent.toml");
    fs::write(&path, format!("directory = {:?}\n{more}", node.services())).unwrap();
    path
}

#[test]
fn settings_and_files_are_read_again() {
    let mut node = Node::new();
    // For a link inotify(7) does not report changes of the target.
    let target = node.directory.path().join("target");
    fs::write(&target, yaml::service("web", VIP, 80, "")).unwrap();
    std::os::unix::fs::symlink(&target, node.services().join("web.yaml")).unwrap();
    let file = settings(&node, "zone = 'a'\n");
    node.start_with(&["--config", file.to_str().unwrap()]);
    let pid = node.status().unwrap().pid;
    assert_eq!(node.status().unwrap().node_addresses.len(), 2);
    fs::write(&target, yaml::service("shop", VIP, 80, "")).unwrap();
    settings(&node, "zone = 'b'\nnode-port-addresses = ['10.244.0.0/16']\n");
    node.hang_up();
    node.wait(|node| node.show("shop").is_ok() && node.show("web").is_err());
    node.wait(|node| node.status().unwrap().zone.as_deref() == Some("b"));
    node.wait(|node| node.status().unwrap().node_addresses == ["10.244.0.1"]);
    // Settings that cannot be changed at run time are reported; invalid settings change nothing.
    settings(&node, "zone = 'b'\nnode-port-addresses = ['10.244.0.0/16']\nmetrics = 'off'\nwatch = true\n");
    node.hang_up();
    node.wait(|node| node.log().contains("start the agent again for what has changed of its settings: watch"));
    settings(&node, "zoned = 'c'\n");
    node.hang_up();
    node.wait(|node| {
        node.log().contains("settings stay what they were") && node.log().contains("unknown field `zoned`")
    });
    fs::remove_file(&file).unwrap();
    node.hang_up();
    node.wait(|node| node.log().contains("cannot read it"));
    let status = node.status().unwrap();
    assert_eq!((status.pid, status.zone.as_deref()), (pid, Some("b")));
    assert!(node.check().is_well() && node.stop().success());
}

#[test]
fn a_kubeconfig_is_read_again() {
    let (mut node, old, new) = (Node::new(), World::new(), World::new());
    old.put(SERVICES, service("web", VIP));
    old.put(SERVICES, service("gone", "10.96.0.11"));
    new.put(SERVICES, service("web", VIP));
    new.put(SERVICES, service("more", "10.96.0.12"));
    let _first = Server::start(&old, &node.testbed.node);
    let _second = Server::start_at(&new, &node.testbed.node, api_server::PORT + 1);
    let kubeconfig = node.kubeconfig(api_server::PORT);
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
    // An invalid kubeconfig changes nothing ...
    fs::write(&kubeconfig, "nonsense").unwrap();
    node.hang_up();
    node.wait(|node| !node.status().unwrap().source.troubles.is_empty());
    old.put(SERVICES, service("late", "10.96.0.13"));
    node.wait(|node| node.show("late").is_ok());
    // ... and with another server, Services that it lacks are removed.
    node.kubeconfig(api_server::PORT + 1);
    node.hang_up();
    node.wait(|node| node.show("more").is_ok() && node.show("gone").is_err() && node.show("late").is_err());
    node.wait(|node| node.check().is_well());
    assert!(node.show("web").is_ok());
}

#[test]
fn it_hears_of_hang_ups_from_its_first_moment() {
    let mut node = Node::new();
    for pause in [0, 1, 2, 5, 10, 50] {
        let services = node.services();
        node.spawn(&["--config", services.to_str().unwrap()]);
        node.wait(|node| node.catches_hang_ups());
        std::thread::sleep(Duration::from_millis(pause));
        node.hang_up();
        node.wait_until_attached();
        assert!(node.stop().success());
    }
}
