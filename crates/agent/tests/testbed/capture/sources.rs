//! Services from an API server, and captured pods from a directory.

use crate::agent::{Node, VIP, at, dial, server};
use crate::api_server::{PORT, SERVICES, SLICES, Server, World, service, slice};
use crate::yaml;
use sidestep_testkit::greeter::{Greeter, INBOUND, ROOT, greeted};
use std::net::SocketAddr;

#[test]
fn neither_source_takes_away_what_the_other_told() {
    let (mut node, world) = (Node::new(), World::new());
    let (pod, backend, client) = (node.routed(), node.routed(), node.routed());
    let (_server, _proxy) = (server(&backend), Greeter::proxy(&pod));
    world.put(SERVICES, service("web", VIP));
    world.put(SERVICES, service("other", "10.96.0.11"));
    world.put(SLICES, slice("web", [&backend]));
    node.captured("a", &pod);
    let first = Server::start(&world, &node.testbed.node);
    let (kubeconfig, captures) = (node.kubeconfig(PORT), node.services());
    let options = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--captures", captures.to_str().unwrap()];
    node.start_with(&options);
    let reached = || client.namespace.run(|| dial(at(VIP, 80)));
    let met = || greeted(&client, ROOT, SocketAddr::new(pod.v4, 9999)).map(|seen| seen.listener);
    assert!(node.status().unwrap().source.name.contains(" and directory "), "{:?}", node.status().unwrap().source);
    assert_eq!((reached().unwrap(), met().unwrap()), (backend.v4, INBOUND));
    // The server's new list has no pods.
    drop(first);
    node.wait(|node| !node.status().unwrap().source.troubles.is_empty());
    world.delete(SERVICES, "other");
    world.forget();
    // Meanwhile the directory is still read.
    node.file("b.yaml", &yaml::capture("b", "nowhere", ""));
    node.wait(|node| node.capture("b").is_some());
    let second = Server::start(&world, &node.testbed.node);
    node.wait(|node| node.show("other").is_err() && node.show("web").is_ok());
    assert_eq!((reached().unwrap(), met().unwrap()), (backend.v4, INBOUND));
    // An empty directory does not affect Services.
    for name in ["a.yaml", "b.yaml"] {
        std::fs::remove_file(node.services().join(name)).unwrap();
    }
    node.wait(|node| node.captures().captures.is_empty() && met().is_err());
    assert!(reached().is_ok());
    // A Service in this directory is an error.
    node.file("service.yaml", &yaml::service("mine", "10.96.0.99", 80, ""));
    node.wait(|node| {
        node.check().troubles.iter().any(|t| t.what.contains("only objects of kind Capture and Policy are read here"))
    });
    assert!(node.show("mine").is_err());
    std::fs::remove_file(node.services().join("service.yaml")).unwrap();
    // An agent that starts while the server is away keeps the earlier Services, and reads the directory.
    node.captured("a", &pod);
    node.wait(|_| met().is_ok());
    node.kill();
    drop(second);
    node.file("a.yaml", &yaml::annotated("a", pod.namespace.name(), "excludeInboundPorts", "9999"));
    node.spawn(&options);
    node.wait(|_| met().is_err());
    assert!(reached().is_ok());
}
