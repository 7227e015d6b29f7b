//! Clients outside of the node, which reach a pod by way of the node: `--replace-kube-proxy`.

use super::world::{ONLY_WEB, World};
use crate::agent::{Node, VIP, at, dial};
use crate::proxy::{NODE_ADDRESS, outside};
use crate::yaml;
use sidestep_agent_api::{Protocol, Question};
use sidestep_testkit::Namespace;
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};

const OPTIONS: [&str; 3] = ["--replace-kube-proxy", "--cluster-cidr", "10.244.0.0/16"];
const NODE_PORT: u16 = 30080;
const ONLY_CLIENT: &str = "select: {matchLabels: {app: db}}, ingress: [{action: allow, from: [{cidr: 192.0.2.2/32}]}]";

/// A Service of `db` with all kinds of addresses, and the traffic policy Cluster.
fn world() -> (World, Namespace) {
    let mut world = World::with(&OPTIONS);
    let client = outside(&world.node);
    let service = yaml::service("db", VIP, 80, "  externalIPs: [198.51.100.1]\n  type: NodePort\n");
    let service = service.replace("{port: 80}", &format!("{{port: 80, nodePort: {NODE_PORT}}}"));
    world.node.file("web.yaml", &(service + &yaml::slice("db", &[world.db.v4], 8080)));
    world.node.wait(|node| call(node, &client, at(NODE_ADDRESS, NODE_PORT)).is_ok());
    (world, client)
}

fn call(node: &Node, client: &Namespace, to: SocketAddr) -> Result<IpAddr> {
    node.testbed.cgroup.outside(|| client.run(|| dial(to)))
}

fn frontends() -> [SocketAddr; 3] {
    [at(NODE_ADDRESS, NODE_PORT), at("198.51.100.1", 80), at(VIP, 80)]
}

/// How the calls to each frontend end.
fn ends(node: &Node, client: &Namespace) -> Vec<Option<ErrorKind>> {
    frontends().into_iter().map(|to| call(node, client, to).err().map(|error| error.kind())).collect()
}

const ALLOWED: [Option<ErrorKind>; 3] = [None; 3];
const REFUSED: [Option<ErrorKind>; 3] = [Some(ErrorKind::ConnectionRefused); 3];

#[test]
fn policies_judge_a_client_by_its_own_address_also_while_no_agent_runs() {
    let (mut world, client) = world();
    let source = |node: &Node| {
        let (from, to) = ("192.0.2.2".parse().unwrap(), at(NODE_ADDRESS, NODE_PORT));
        let said = node.explain(Question::ExplainPacket { from, protocol: Protocol::Tcp, to });
        said.steps.into_iter().find(|step| step.rule == "source that the backend sees").unwrap().outcome
    };
    assert_eq!(ends(&world.node, &client), ALLOWED);
    assert!(source(&world.node).starts_with("an address of the node, so"), "{}", source(&world.node));
    world.policy("db", ONLY_WEB, "db");
    assert_eq!(ends(&world.node, &client), REFUSED);
    assert!(source(&world.node).starts_with("the client's own"), "{}", source(&world.node));
    assert_eq!(world.node.counted("policy-denied-in"), 3);
    world.policy("db", ONLY_CLIENT, "db");
    assert_eq!(ends(&world.node, &client), ALLOWED);
    world.forget("db");
    world.node.wait(|node| source(node).starts_with("an address of the node, so"));
    world.policy("db", ONLY_WEB, "db");
    assert!(world.node.check().is_well(), "{:?}", world.node.check());

    world.node.kill();
    assert_eq!(ends(&world.node, &client), REFUSED, "without an agent");
    let services = world.node.services();
    world.node.start_with(&[&["--config", services.to_str().unwrap()], &OPTIONS[..]].concat());
    assert_eq!(ends(&world.node, &client), REFUSED, "with the next agent");
    world.forget("db");
    world.node.wait(|node| ends(node, &client) == ALLOWED);
    world.node.wait(|node| source(node).starts_with("an address of the node, so"));
}
