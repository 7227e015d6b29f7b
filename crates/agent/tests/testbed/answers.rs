//! What the agent reports about itself.

use crate::agent::{Node, VIP, at, dial, server};
use crate::yaml;
use sidestep_agent_api::{Caller, Protocol, Question, Verdict};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};

#[test]
fn metrics_and_lists_tell_what_was_counted() {
    let mut node = Node::with_agent();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let _server = server(&pod);
    let service = yaml::service("web", VIP, 80, "  sessionAffinity: ClientIP\n");
    node.file("web.yaml", &(service + &yaml::slice("web", &[pod.v4], 8080)));
    node.file("none.yaml", &yaml::service("none", "10.96.0.11", 81, ""));
    node.wait(|node| node.show("none").is_ok() && node.show("web").is_ok_and(|web| web.ports[0].backend_count == 1));
    let open = client.namespace.run(|| {
        (0..3).for_each(|_| assert!(dial(at(VIP, 80)).is_ok()));
        assert!(dial(at("10.96.0.11", 81)).is_err());
        TcpStream::connect(at(VIP, 80)).unwrap()
    });
    let text = node.metrics();
    let labels = |name: &str| {
        format!(
            "{{namespace=\"default\",service=\"{name}\",port=\"\",protocol=\"TCP\",family=\"IPv4\",policy=\"Cluster\"}}"
        )
    };
    for line in [
        format!("sidestep_service_picks_total{} 4", labels("web")),
        format!("sidestep_service_affinity_hits_total{} 3", labels("web")),
        format!("sidestep_service_refused_total{} 1", labels("none")),
        format!("sidestep_backend_active_connections{{backend=\"{}:8080\"}} 1", pod.v4),
        "sidestep_events_total{reason=\"translated\"} 4".into(),
        "sidestep_map_entries{map=\"frontends\"} 2".into(),
        "sidestep_services 2".into(),
        "sidestep_attached 1".into(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let web = node.show("web").unwrap().ports.remove(0);
    assert_eq!((web.backends[0].active, web.backends[0].picks, web.affinity_seconds), (1, 4, 10_800));
    drop(open);
    assert_eq!(node.show("web").unwrap().ports[0].backends[0].active, 0);
}

/// Anybody can reach the metrics port.
#[test]
fn half_sent_requests_for_metrics_cost_little() {
    let node = Node::with_agent();
    node.metrics();
    let before = node.resident_kib();
    // The first half of them is closed at once, so 1024 descriptors are enough for this test.
    let half: Vec<_> = (0..1800)
        .filter_map(|n| {
            let mut stream = node.testbed.node.run(|| TcpStream::connect("127.0.0.1:9464")).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nX-Half: ").unwrap();
            (n >= 900).then_some(stream)
        })
        .collect();
    assert!(node.metrics().contains("sidestep_attached 1"), "whoever asks is answered");
    let grown = node.resident_kib().saturating_sub(before);
    assert!(grown < 10 << 10, "{grown} KiB more for {} connections", half.len());
}

#[test]
fn refused_connections_are_logged_once_a_second() {
    let mut node = Node::with_agent();
    let client = node.testbed.pod();
    node.file("none.yaml", &yaml::service("none", "10.96.0.11", 81, ""));
    node.wait(|node| node.show("none").is_ok());
    client.namespace.run(|| (0..20).for_each(|_| assert!(dial(at("10.96.0.11", 81)).is_err())));
    let line = "service=default/none TCP to=10.96.0.11:81";
    node.wait(|node| node.log().contains(line));
    let log = node.log();
    let lines: Vec<_> = log.lines().filter(|found| found.contains(line)).collect();
    assert!(lines.len() <= 2 && lines[0].contains("reason=\"refused\""), "{lines:?}");
}

#[test]
fn a_service_is_shown_with_what_is_not_used_and_why() {
    let mut node = Node::with_agent();
    let addresses: Vec<IpAddr> = ["10.1.0.1", "10.1.0.2", "10.1.0.3"].map(|ip| ip.parse().unwrap()).into();
    let slice = yaml::slice("web", &addresses, 8080)
        .replace("{addresses: ['10.1.0.2']}", "{addresses: ['10.1.0.2'], conditions: {ready: false}}")
        .replace(
            "{addresses: ['10.1.0.3']}",
            "{addresses: ['10.1.0.3'], conditions: {ready: false, serving: true, terminating: true}}",
        );
    node.file("web.yaml", &(yaml::service("web", VIP, 80, "") + &slice));
    // A younger Service that claims the same address.
    node.file("x.yaml", &yaml::service("xeb", VIP, 80, ""));
    node.wait(|node| node.show("xeb").is_ok());
    let port = node.show("web").unwrap().ports.remove(0);
    assert_eq!(port.backends.iter().map(|b| b.address.to_string()).collect::<Vec<_>>(), ["10.1.0.1:8080"]);
    let unused: Vec<_> = port.unused.iter().map(|unused| (unused.address.as_str(), unused.why.as_str())).collect();
    assert_eq!(unused, [("10.1.0.2", "not ready"), ("10.1.0.3", "terminating, and there are others that are ready")]);
    let problems = node.show("xeb").unwrap().problems;
    assert_eq!(problems, ["TCP 10.96.0.10:80 belongs to default/web TCP already"]);
    assert!(!node.check().is_well());
    assert!(node.show("nobody").unwrap_err().contains("there is no Service default/nobody"));
}

#[test]
fn explanations_say_which_rule_decides() {
    let mut node = Node::with_agent();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let service =
        yaml::service("web", VIP, 80, "  type: NodePort\n").replace("{port: 80}", "{port: 80, nodePort: 30080}");
    node.file("web.yaml", &(service + &yaml::slice("web", &[pod.v4], 8080)));
    node.file("none.yaml", &yaml::service("none", "10.96.0.11", 81, ""));
    node.wait(|node| node.show("none").is_ok() && node.show("web").is_ok_and(|web| web.ports[0].backend_count == 1));
    let sleeper = |place: &sidestep_testkit::Namespace| {
        place.run(|| std::process::Command::new("sleep").arg("60").spawn().unwrap())
    };
    let (mut in_pod, mut in_node) = (sleeper(&client.namespace), sleeper(&node.testbed.node));
    let explain = |from: &Caller, to: &str| {
        node.explain(Question::Explain { from: from.clone(), protocol: Protocol::Tcp, to: to.parse().unwrap() })
    };
    let (pod_process, node_process) = (Caller::Process(in_pod.id()), Caller::Process(in_node.id()));
    let found = explain(&pod_process, "10.96.0.10:80");
    assert_eq!((found.verdict, found.service.as_deref()), (Verdict::Translated, Some("default/web TCP")));
    assert_eq!(found.backends[0].address, SocketAddr::new(pod.v4, 8080));
    for (from, to, verdict, why) in [
        (&pod_process, "10.96.0.11:81", Verdict::Refused, "none that serves here"),
        (&pod_process, "10.96.0.10:81", Verdict::Untouched, "of this address TCP 80 is default/web TCP"),
        (&pod_process, "10.9.9.9:80", Verdict::Untouched, "no Service has this address"),
        (&pod_process, "127.0.0.1:30080", Verdict::Untouched, "a pod's loopback is its own"),
        (&node_process, "127.0.0.1:30080", Verdict::Translated, "yes: its loopback"),
        (&pod_process, "10.244.0.1:30080", Verdict::Translated, "a random one by weight"),
        (&pod_process, "10.244.0.9:30080", Verdict::Untouched, "none of its addresses"),
        (&Caller::Process(1), "10.96.0.10:80", Verdict::Untouched, "is not in"),
        (
            &Caller::Cgroup(node.testbed.cgroup.path().into()),
            "[::ffff:10.96.0.10]:80",
            Verdict::Translated,
            "1, a random one",
        ),
    ] {
        let found = explain(from, to);
        let text = format!("{:?}", found.steps);
        assert!(found.verdict == verdict && text.contains(why), "{to}: {found:?}");
    }
    for process in [&mut in_pod, &mut in_node] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let gone = node.ask(Question::Explain { from: pod_process, protocol: Protocol::Tcp, to: at(VIP, 80) });
    assert!(gone.unwrap_err().contains("/cgroup: No such file or directory"));
}

#[test]
fn tables_that_somebody_else_has_changed_are_found_out() {
    let mut node = Node::with_agent();
    let pod = node.testbed.pod();
    node.web([&pod]);
    node.wait(|node| node.show("web").is_ok_and(|web| web.ports.first().is_some_and(|port| port.backend_count == 1)));
    assert!(node.check().is_well());
    let frontends = node.pins().join(format!("services/maps-{}/frontends", sidestep_ebpf::layout::VERSION));
    let bpftool = |words: &[&str]| {
        let done = std::process::Command::new("/usr/sbin/bpftool").args(["-j", "map"]).args(words).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let pinned = frontends.to_str().unwrap();
    let dump = bpftool(&["dump", "pinned", pinned]);
    let key: Vec<String> = dump
        .split("\"key\":[")
        .nth(1)
        .unwrap()
        .split(']')
        .next()
        .unwrap()
        .split(',')
        .map(|byte| byte.trim_matches('"').into())
        .collect();
    let words: Vec<&str> =
        ["delete", "pinned", pinned, "key"].into_iter().chain(key.iter().map(String::as_str)).collect();
    bpftool(&words);
    assert_eq!(node.check().differences, ["default/web TCP: TCP 10.96.0.10:80: is not in the tables"]);
    node.kill();
    node.start();
    assert!(node.check().is_well());
}
