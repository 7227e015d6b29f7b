//! Measures what policies, and watching, cost a connect():
//! `cargo test --release -p sidestep-ebpf --test testbed -- --ignored cost --nocapture`.

use super::probe::Family;
use super::world::{PORTS, World};
use crate::sockets::fresh;
use rustix::net::SocketType;
use rustix::time::{ClockId, clock_gettime};
use sidestep_ebpf::services;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};

const ROUNDS: usize = 41;

/// CPU time of this thread, so that other load does not count.
fn processor_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn each(count: u32, mut once: impl FnMut()) -> f64 {
    let begun = processor_ns();
    (0..count).for_each(|_| once());
    (processor_ns() - begun) / f64::from(count)
}

/// Only the hook and the routing look-up.
fn datagram(to: SocketAddr) -> f64 {
    let socket = fresh(SocketType::DGRAM, to.is_ipv6());
    each(20_000, || rustix::net::connect(&socket, &to).unwrap())
}

fn stream(to: SocketAddr) -> f64 {
    each(200, || {
        let mut said = String::new();
        TcpStream::connect(to).unwrap().read_to_string(&mut said).unwrap();
    })
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

fn many() -> String {
    let mut rules = String::new();
    for i in 0..1000 {
        write!(rules, "{{action: allow, ports: [{{port: {}}}]}}, ", 10_000 + i).unwrap();
        write!(rules, "{{action: allow, to: [{{cidr: 172.{}.{}.0/24}}]}}, ", 16 + i / 256, i % 256).unwrap();
    }
    format!("select: {{matchLabels: {{app: web}}}}, egress: [{rules}{{action: allow, to: [{{labels: {{app: db}}}}]}}]")
}

#[test]
#[ignore = "a measurement"]
fn cost_of_a_connect() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let to = world.place(&db, Family::V4, PORTS[0]);
    let one = "select: {matchLabels: {app: web}}, egress: [{action: allow, to: [{labels: {app: db}}]}]".to_string();
    let variants = [
        ("no policy", None, false),
        ("one rule", Some(one), false),
        ("2000 rules", Some(many()), false),
        ("watched", None, true),
    ];
    let mut found: BTreeMap<(usize, &str), Vec<f64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (name, spec, watch) in &variants {
            world.forget_policies();
            // Only pods with a policy are watched, so this one is about the other direction.
            let ingress = "select: {matchLabels: {app: web}}, ingress: [{action: allow}]".to_string();
            let spec = spec.clone().or(watch.then_some(ingress));
            spec.iter().for_each(|spec| world.policy("p", spec));
            world.settle();
            services::install(&services::Options { watch: *watch, ..world.node.options.clone() }, |_| Ok(())).unwrap();
            let (datagrams, streams) = world.pods[&web].namespace.run(|| (datagram(to), stream(to)));
            found.entry((0, *name)).or_default().push(datagrams);
            found.entry((1, *name)).or_default().push(streams);
        }
    }
    for ((kind, name), list) in found {
        let what = ["UDP connect(2)", "TCP connection, and its one answer"][kind];
        println!("{what:36} {name:12} {:9.0} ns", median(list));
    }
}
