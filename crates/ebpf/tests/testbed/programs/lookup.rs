//! Name servers behind a Service. Resolvers check the source address of an answer.

use super::dns;
use crate::node::{Node, backend};
use crate::scratch::Scratch;
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_testkit::Pod;
use sidestep_testkit::program::command;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

const VIP: &str = "10.96.0.53";
const VIP6: &str = "fd00:96::53";

fn service(node: &mut Node, name: &str, vip: &str, pods: &[Pod]) {
    let endpoints = || pods.iter().map(|pod| (if vip.contains(':') { pod.v6 } else { pod.v4 }, 5353));
    node.service(&format!("{name}-udp"), Udp, vip, 53, endpoints());
    node.service(&format!("{name}-tcp"), Tcp, vip, 53, endpoints());
}

/// So many that each of three servers is asked, except in one of 10^10 runs.
const QUESTIONS: usize = 60;

#[test]
fn dig_takes_the_answers_of_every_server_behind_the_service() {
    let mut node = Node::new();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod(), node.testbed.pod()]);
    let _servers: Vec<_> = pods.iter().map(|pod| dns::server(pod, 5353, &[])).collect();
    service(&mut node, "four", VIP, &pods);
    service(&mut node, "six", VIP6, &pods);
    for (vip, kind) in [(VIP, "A"), (VIP6, "AAAA")] {
        let scratch = Scratch::new();
        let mut questions = String::new();
        (0..QUESTIONS).for_each(|i| writeln!(questions, "@{vip} q{i}.test {kind}").unwrap());
        let list = scratch.file("questions", &questions);
        let wanted: BTreeSet<IpAddr> = pods.iter().map(|pod| if kind == "A" { pod.v4 } else { pod.v6 }).collect();
        let options = ["+short", "+tries=1", "+time=20", "-f", list.to_str().unwrap()];
        let said = client.namespace.finish(command("dig").args(options));
        assert_eq!(said.lines().count(), QUESTIONS, "{said}");
        assert_eq!(said.lines().map(|line| line.parse().unwrap()).collect::<BTreeSet<IpAddr>>(), wanted);
        let said =
            client.namespace.finish(command("dig").args([&format!("@{vip}"), "+tcp", "+time=20", "a.test", kind]));
        assert!(said.contains(&format!("SERVER: {vip}#53({vip}) (TCP)")) && said.contains("ANSWER: 1"), "{said}");
    }
}

/// Runs a command line with this /etc/resolv.conf.
fn with_resolvers(client: &Pod, servers: &[&str], line: &str) -> String {
    let scratch = Scratch::new();
    let text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    let file = scratch.file("resolv.conf", &format!("{text}options timeout:20 attempts:1\n"));
    let script = format!("mount --bind {} /etc/resolv.conf && {line}", file.display());
    client.namespace.finish(command("unshare").args(["--mount", "sh", "-c", &script]))
}

/// One server without endpoints, one whose endpoint does not exist, and one that answers.
#[test]
fn of_several_name_servers_the_one_that_answers_is_taken() {
    let mut node = Node::new();
    let (client, server, idle) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _server = dns::server(&server, 5353, &[("web.test", "192.0.2.7")]);
    let _other = backend(&idle, 8080);
    service(&mut node, "none", "10.96.0.1", &[]);
    service(&mut node, "dead", "10.96.0.2", &[idle]);
    service(&mut node, "good", "10.96.0.3", &[server]);
    let servers = ["10.96.0.1", "10.96.0.2", "10.96.0.3"];
    let said = with_resolvers(&client, &servers, "dig +time=20 +tries=1 web.test A");
    assert!(said.contains("192.0.2.7") && said.contains("SERVER: 10.96.0.3#53(10.96.0.3) (UDP)"), "{said}");
    // The C library's own resolver.
    let said = with_resolvers(&client, &servers, "getent ahostsv4 web.test");
    assert!(said.starts_with("192.0.2.7 "), "{said}");
}
