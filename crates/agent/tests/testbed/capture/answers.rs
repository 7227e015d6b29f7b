//! What the agent reports about captured pods.

use crate::agent::{Node, VIP, at, dial, server};
use crate::yaml;
use sidestep_agent_api::{Caller, Captures, Protocol, Question, Verdict};
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Greeter, OUTBOUND, ROOT, greeted};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

fn sleeper(pod: &Pod, user: u32) -> Child {
    pod.namespace.run(|| Command::new("sleep").arg("60").uid(user).gid(user).spawn().unwrap())
}

fn outbound(node: &Node, from: &Child, to: &str) -> (Verdict, String) {
    let (protocol, to) = match to.strip_prefix("udp:") {
        Some(to) => (Protocol::Udp, to),
        None => (Protocol::Tcp, to),
    };
    let question = Question::Explain { from: Caller::Process(from.id()), protocol, to: to.parse().unwrap() };
    let found = node.explain(question);
    (found.verdict, format!("{:?}", found.steps))
}

#[test]
fn explanations_name_the_rule_that_decides() {
    let mut node = Node::with_agent();
    let (pod, backend) = (node.routed(), node.routed());
    let _server = server(&backend);
    node.web([&backend]);
    let dns = "  dns: {servers: [10.96.0.53]}\n";
    let text = yaml::annotated("a", pod.namespace.name(), "excludeOutboundPorts", "5432") + dns;
    node.file("a.yaml", &text.replace(&format!("---\n{dns}"), &format!("{dns}---\n")));
    node.wait(|node| node.is_captured("a") && node.show("web").is_ok_and(|web| web.ports[0].backend_count == 1));
    let (mut program, mut proxy) = (sleeper(&pod, 0), sleeper(&pod, 1337));
    let own = pod.v4.to_string();
    for (from, to, verdict, why) in [
        (&program, "10.96.0.10:80", Verdict::CapturedOutbound, "OUTPUT 11: includeOutboundIPRanges"),
        (&program, "[::ffff:10.9.9.9]:80", Verdict::CapturedOutbound, "OUTPUT 11: includeOutboundIPRanges"),
        (&program, "10.9.9.9:5432", Verdict::Untouched, "OUTPUT 2: excludeOutboundPorts"),
        (&program, "127.0.0.1:80", Verdict::Untouched, "OUTPUT 4b: within the pod"),
        (&program, &format!("{own}:80"), Verdict::Untouched, "OUTPUT 4b: within the pod"),
        (&program, "10.96.0.53:53", Verdict::CapturedDns, "OUTPUT 7: DNS"),
        (&program, "udp:10.96.0.53:53", Verdict::CapturedDns, "OUTPUT 7: DNS"),
        (&program, "udp:10.9.9.9:53", Verdict::Untouched, "OUTPUT: no rule"),
        (&proxy, "10.9.9.9:80", Verdict::Untouched, "OUTPUT 4c: the proxy's user"),
        (&proxy, &format!("{own}:80"), Verdict::CapturedInbound, "OUTPUT 4a: the proxy's user calls its own pod"),
        // Only connections that are not captured are balanced.
        (&proxy, "10.96.0.10:80", Verdict::Translated, "OUTPUT 4c: the proxy's user"),
    ] {
        let (found, steps) = outbound(&node, from, to);
        assert!(found == verdict && steps.contains(why), "{to}: {found:?} {steps}");
        assert!(steps.contains("by the rules of Capture default/a"), "{steps}");
    }
    let steps = outbound(&node, &proxy, "10.9.9.9:80").1;
    assert!(steps.contains("user 1337, group 1337: the proxy's") && steps.contains("eth0: 0.0.0.0/0"), "{steps}");
    // Without a route there is nothing to capture.
    pod.namespace.ip("route del default");
    let (verdict, steps) = outbound(&node, &program, "10.9.9.9:80");
    assert!(verdict == Verdict::Refused && steps.contains("the error is the same"), "{verdict:?} {steps}");
    for child in [&mut program, &mut proxy] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_comes_in_is_explained_too() {
    let mut node = Node::with_agent();
    let pod = node.routed();
    let name = pod.namespace.name().to_string();
    let inbound = |node: &Node, port: u16, interface: Option<&str>| {
        let question = Question::ExplainInbound {
            netns: name.clone(),
            port,
            interface: interface.map(Into::into),
            source: None,
            protocol: Protocol::Tcp,
        };
        let found = node.explain(question);
        (found.verdict, format!("{:?}", found.steps))
    };
    assert!(inbound(&node, 8080, None).1.contains("no file of kind Capture is for this pod"));
    node.captured("a", &pod);
    node.wait(|node| node.is_captured("a"));
    let (verdict, steps) = inbound(&node, 8080, None);
    assert!(verdict == Verdict::Refused && steps.contains("does not listen there: ECONNREFUSED"), "{steps}");
    let _proxy = Greeter::proxy(&pod);
    let (verdict, steps) = inbound(&node, 8080, None);
    assert!(verdict == Verdict::CapturedInbound && steps.contains("INPUT 4: includeInboundPorts"), "{steps}");
    assert!(steps.contains("by eth0, to 10.244.0.2:8080") && steps.contains("with 2 sockets"), "{steps}");
    for (port, interface, why) in [
        (15008, None, "INPUT 3: the tunnel's port"),
        (15021, None, "INPUT 4: includeInboundPorts"),
        (8080, Some("lo"), "decided when it was sent"),
    ] {
        let (verdict, steps) = inbound(&node, port, interface);
        assert!(verdict == Verdict::Untouched && steps.contains(why), "{port}: {verdict:?} {steps}");
    }
    let wrong = Question::ExplainInbound {
        netns: name.clone(),
        port: 1,
        interface: Some("eth7".into()),
        source: None,
        protocol: Protocol::Tcp,
    };
    assert!(node.ask(wrong).unwrap_err().contains("has no interface eth7, but eth0, lo"));
    let nowhere = Question::ExplainInbound {
        netns: "nowhere".into(),
        port: 1,
        interface: None,
        source: None,
        protocol: Protocol::Tcp,
    };
    assert!(node.ask(nowhere).unwrap_err().contains("/run/netns/nowhere"));
}

fn list(node: &Node, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-agent"));
    command.args(["capture", "list", "--socket"]).arg(node.socket()).arg("--pins").arg(node.pins()).args(more);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn captured_pods_are_listed_and_counted() {
    let mut node = Node::with_agent();
    let (pods, other) = ([node.routed(), node.routed()], node.routed());
    let (_proxy, _program) = (Greeter::proxy(&pods[0]), Greeter::program(&other, 8080));
    node.captured("a", &pods[0]);
    node.captured("b", &pods[1]);
    node.file("c.yaml", &yaml::capture("c", "nowhere", ""));
    node.wait(|node| {
        node.is_captured("a") && node.is_captured("b") && node.capture("c").is_some_and(|c| !c.troubles.is_empty())
    });
    let to = SocketAddr::new(other.v4, 8080);
    (0..3).for_each(|_| assert_eq!(greeted(&pods[0], ROOT, to).unwrap().listener, OUTBOUND));
    let text = node.metrics();
    for line in [
        "sidestep_captured_pods 2",
        "sidestep_capture_listeners_missing{namespace=\"default\",name=\"a\"} 0",
        "sidestep_capture_listeners_missing{namespace=\"default\",name=\"b\"} 2",
        "sidestep_capture_troubles 1",
        "sidestep_captured_namespaces_ended_total 0",
        "sidestep_map_entries{map=\"pods\"} 2",
        "sidestep_map_entries{map=\"pending\"} 0",
        "sidestep_map_entries{map=\"listeners\"} 4",
        "sidestep_map_capacity{map=\"sets\"} 1048576",
        "sidestep_events_total{reason=\"captured-outbound\"} 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let text = list(&node, &[]);
    let line =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(line("default/a ").contains("2+2  captured"), "{text}");
    assert!(line("default/b ").contains("0+0  captured; the proxy does not listen"), "{text}");
    assert!(line("default/c ").ends_with("not captured"), "{text}");
    assert!(text.contains("there is no network namespace /run/netns/nowhere") && text.contains("3 captured-outbound"));
    let told: Captures = serde_json::from_str(&list(&node, &["--json"])).unwrap();
    assert_eq!(told.captures.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    // Without an agent the command reports what the tables hold.
    assert!(node.stop().success());
    let told: Captures = serde_json::from_str(&list(&node, &["--json"])).unwrap();
    let mut expected = pods.each_ref().map(|pod| pod.namespace.name().to_string());
    expected.sort();
    assert_eq!(told.captures.iter().map(|one| one.netns.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!(told.captures.iter().map(|one| one.inbound_listeners).sum::<usize>(), 2);
}

/// Anybody who asks sees that an Envoy has no IPv4 listener, and refused connections are logged with the pod's name.
#[test]
fn refused_connections_are_logged_with_the_pods_name() {
    let mut node = Node::with_agent();
    let (pod, _other) = (node.testbed.pod(), node.testbed.pod());
    node.captured("a", &pod);
    node.wait(|node| node.is_captured("a"));
    // The pod has no route there.
    let refused = pod.namespace.run(|| dial(at(VIP, 80))).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::NetworkUnreachable);
    node.wait(|node| node.log().contains("reason=\"no-route\""));
    assert!(node.log().contains("capture=\"default/a\""), "{}", node.log());
}

#[test]
fn tables_that_somebody_else_has_changed_are_found_out() {
    let mut node = Node::with_agent();
    let pods = [node.routed(), node.routed()];
    node.captured("a", &pods[0]);
    node.captured("b", &pods[1]);
    node.wait(|node| node.is_captured("a") && node.is_captured("b") && node.check().is_well());
    let inbound = node.pins().join("services/inbound");
    let cookie = node.capture("a").unwrap().cookie.unwrap();
    std::fs::remove_file(inbound.join(cookie.to_string())).unwrap();
    node.wait(|node| !node.check().differences.is_empty());
    assert_eq!(node.check().differences, ["Capture default/a: no program is attached in its namespace"]);
    let words = |of: u64| of.to_ne_bytes().map(|byte| byte.to_string()).join(" ");
    let erase = |table: &str, key: &str| {
        let path = std::fs::read_dir(node.pins().join("services")).unwrap().map(|entry| entry.unwrap().path());
        let path = path.map(|path| path.join(table)).find(|path| path.exists()).unwrap();
        let words = format!("map delete pinned {} key {key}", path.display());
        let done = Command::new("/usr/sbin/bpftool").args(words.split(' ')).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    erase("pods", &words(node.capture("b").unwrap().cookie.unwrap()));
    let differences = node.check().differences;
    assert!(differences.contains(&"Capture default/b: is not in the tables".to_string()), "{differences:?}");
    node.kill();
    node.start();
    node.wait(|node| node.check().is_well());
}
