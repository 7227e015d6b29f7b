//! Endpoints that change, agents that follow each other, and removal.

use super::world::{World, call, frontends, witness};
use sidestep_ebpf::external;
use sidestep_mesh::address::Protocol::Tcp;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn connections_outlive_a_change_of_endpoints_and_an_exchange_of_programs() {
    let mut world = World::new();
    let pods = [world.pod(), world.pod()];
    let _witnesses = [witness(&pods[0]), witness(&pods[1])];
    world.service(Tcp, &[(&pods[0], "node")], |_| {});
    let mut old = world.outside.run(|| call(frontends(0)[0]));
    old.exchange(1000);
    world.endpoints(Tcp, &[(&pods[1], "node")]);
    old.exchange(100_000);
    assert_eq!(world.outside.run(|| call(frontends(0)[0])).server, pods[1].v4);
    // Another agent takes over.
    let pins = world.node.options.pins.clone();
    world.external = world.node.testbed.node.run(|| external::install(&pins).unwrap());
    old.exchange(100_000);
    assert_eq!(old.server, pods[0].v4);
    assert_eq!(world.outside.run(|| call(frontends(0)[0])).server, pods[1].v4);
}

#[test]
fn no_connection_fails_while_endpoints_change() {
    let mut world = World::new();
    let pods = [world.pod(), world.pod(), world.pod()];
    let _witnesses: Vec<_> = pods.iter().map(witness).collect();
    world.service(Tcp, &[(&pods[0], "node")], |_| {});
    let (done, outside) = (AtomicBool::new(false), world.outside.path());
    let count = std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            sidestep_testkit::run_in(&outside, || {
                let mut count = 0;
                while !done.load(Ordering::SeqCst) || count < 20 {
                    call(frontends(count % 2)[count % 3]).exchange(10_000);
                    count += 1;
                }
                count
            })
        });
        for round in 0..60 {
            let set: Vec<_> =
                (0..3).filter(|i| ((round + 1) % 8) & (1 << i) != 0).map(|i| (&pods[i], "node")).collect();
            let set = if set.is_empty() { vec![(&pods[0], "node")] } else { set };
            world.endpoints(Tcp, &set);
        }
        done.store(true, Ordering::SeqCst);
        clients.join().unwrap()
    });
    assert!(count >= 20);
}

#[test]
fn somebody_who_flushes_the_rules_stops_the_translation_only_until_the_next_look() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |_| {});
    let pins = world.node.options.pins.clone();
    world.node.testbed.node.run(|| {
        assert!(external::is_attached(&pins));
        assert!(Command::new("nft").args(["flush", "ruleset"]).status().unwrap().success());
        assert!(!external::is_attached(&pins));
        world.external.follow().unwrap();
        assert!(external::is_attached(&pins));
    });
    world.outside.run(|| call(frontends(0)[2]).exchange(1000));
}

#[test]
fn removal_leaves_nothing() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |_| {});
    world.outside.run(|| call(frontends(0)[0]));
    let pins = world.node.options.pins.clone();
    world.node.testbed.node.run(|| {
        external::remove(&pins).unwrap();
        assert!(!external::is_attached(&pins) && !pins.join("services/external").exists());
        let rules = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&rules.stdout), "");
        let devices = Command::new("bpftool").args(["net", "show"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&devices.stdout).contains("tcx/ingress"), "{devices:?}");
        external::remove(&pins).unwrap(); // nothing is no error
    });
}
