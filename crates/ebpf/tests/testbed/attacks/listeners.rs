//! A program of the pod that listens at the proxy's port, at an address where the proxy does not, is not taken for the proxy.

use super::caller::NOBODY;
use crate::capture::world::{INBOUND, OUTBOUND, World, any, dial_as, of, program, rules};
use crate::sockets::at;
use sidestep_mesh::capture::rules::Rules;
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Greeter, PROXY, ROOT};
use std::io::ErrorKind::ConnectionRefused;
use std::net::IpAddr;

/// Listens at IPv6, which a proxy that listens only at IPv4 leaves free.
fn beside_the_proxy(pod: &Pod) -> Greeter {
    pod.namespace.run(|| Greeter::here(NOBODY, &[at("::1", INBOUND)]))
}

fn proxy_by_v4(pod: &Pod) -> Greeter {
    pod.namespace.run(|| Greeter::here(PROXY, &[any(OUTBOUND)[0], any(INBOUND)[0]]))
}

struct Scene {
    world: World,
    client: Pod,
    server: Pod,
}

impl Scene {
    fn new() -> Scene {
        let mut world = World::new();
        let (client, server) = (world.pod(), world.pod());
        Scene { world, client, server }
    }

    /// The port of the listener that answers a client. None: the connection is refused.
    fn met(&self, ip: IpAddr) -> Option<u16> {
        match dial_as(&self.client, ROOT, of(ip, 8080)) {
            Ok(met) => Some(met.seen.listener),
            Err(error) => {
                assert_eq!(error.kind(), ConnectionRefused);
                None
            }
        }
    }
}

#[test]
fn who_listens_at_the_proxys_port_is_not_the_proxy() {
    let mut scene = Scene::new();
    let _program = program(&scene.server, 8080);
    scene.world.capture(&scene.server, &rules());
    let _stranger = beside_the_proxy(&scene.server);
    assert_eq!([scene.server.v4, scene.server.v6].map(|ip| scene.met(ip)), [None, None]);
    assert_eq!(scene.world.node.reason("listener-of-others"), 1);
    let _proxy = proxy_by_v4(&scene.server);
    assert_eq!([scene.server.v4, scene.server.v6].map(|ip| scene.met(ip)), [Some(INBOUND), None]);
}

#[test]
fn who_listened_there_before_the_pod_was_captured_is_not_the_proxy_either() {
    let mut scene = Scene::new();
    let _program = program(&scene.server, 8080);
    let (_stranger, _proxy) = (beside_the_proxy(&scene.server), proxy_by_v4(&scene.server));
    scene.world.capture(&scene.server, &rules());
    assert_eq!([scene.server.v4, scene.server.v6].map(|ip| scene.met(ip)), [Some(INBOUND), None]);
}

/// If the rules name no owner, any listener counts as the proxy.
#[test]
fn without_an_owner_in_the_rules_anybody_may_be_the_proxy() {
    let mut scene = Scene::new();
    scene.world.capture(&scene.server, &Rules { proxy_uids: Vec::new(), proxy_gids: Vec::new(), ..rules() });
    let _proxy = scene.server.namespace.run(|| Greeter::here(NOBODY, &any(INBOUND)));
    assert_eq!([scene.server.v4, scene.server.v6].map(|ip| scene.met(ip)), [Some(INBOUND); 2]);
}

/// An IPv6 connection is redirected to the pod's own address only if the proxy listens there, not another program.
#[test]
fn what_a_pod_sends_is_not_led_to_a_stranger_at_its_own_address() {
    let mut scene = Scene::new();
    let pod = &scene.client;
    let _proxy = pod.namespace.run(|| Greeter::here(PROXY, &[at("::1", OUTBOUND)]));
    let own = of(pod.v6, OUTBOUND);
    let _stranger = pod.namespace.run(|| Greeter::here(NOBODY, &[own]));
    let _program = program(&scene.server, 8080);
    scene.world.capture(pod, &rules());
    let met = dial_as(pod, ROOT, of(scene.server.v6, 8080)).unwrap();
    assert_ne!(met.seen.local, own);
}
