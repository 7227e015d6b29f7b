//! Policies of pods with a proxy: they apply to what the proxy sends and receives.

use super::world::World;
use crate::capture::world::{INBOUND, OUTBOUND, dial_as, of, proxy, rules};
use sidestep_ebpf::capture::{Captures, pod_network};
use sidestep_ebpf::netns;
use sidestep_testkit::greeter::{PROXY, ROOT};
use std::io::ErrorKind;

#[test]
fn a_connection_is_evaluated_where_it_leaves_a_pod_and_where_it_comes_in() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let mut captures = Captures::open(&world.node.options.pins).unwrap();
    let _proxies = [&web, &db].map(|name| {
        let path = world.pods[name].namespace.path();
        let proxy = proxy(&world.pods[name]);
        captures.put(&path, netns::cookie_of(&path).unwrap(), &rules(), &pod_network::read(&path).unwrap()).unwrap();
        proxy
    });
    let to = of(world.address(&db, false), 9000);
    let (client, refused) = (&web, ErrorKind::ConnectionRefused);
    let dial = |world: &World, owner| dial_as(&world.pods[client], owner, to);
    assert_eq!(dial(&world, PROXY).unwrap().seen.listener, INBOUND);
    // The proxy may not send; the program's connection to it stays within the pod.
    world.policy("one", "select: {matchLabels: {app: web}}, default: {egress: deny}");
    world.settle();
    assert_eq!(dial(&world, ROOT).unwrap().seen.listener, OUTBOUND);
    assert_eq!(dial(&world, PROXY).unwrap_err().kind(), refused);
    // Rules apply to the dialled port and the client, whatever the proxy's own port is.
    let spec = |port| {
        format!(
            "select: {{matchLabels: {{app: db}}}}, ingress: [{{action: allow, from: [{{labels: {{app: web}}}}], ports: [{{port: {port}}}]}}]"
        )
    };
    for (port, is_open) in [(9000, true), (INBOUND, false)] {
        world.policy("one", &spec(port));
        world.settle();
        match dial(&world, PROXY) {
            Ok(met) => assert!(is_open && met.seen.listener == INBOUND && met.seen.original == Some(to)),
            Err(error) => assert!(!is_open && error.kind() == refused, "{error}"),
        }
    }
}
