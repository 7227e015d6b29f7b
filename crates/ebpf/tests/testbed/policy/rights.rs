//! Policies and counters need only two capabilities: without CAP_PERFMON the verifier still accepts programs without pointer
//! arithmetic.

use super::probe::{Family, Seen};
use super::world::{PORTS, World};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use sidestep_ebpf::policy::{Addresses, Policies};
use sidestep_ebpf::services::{self, Options};
use sidestep_ebpf::watch::Watch;
use sidestep_ebpf::{netns, packets, probe};
use sidestep_mesh::address::Protocol::Tcp;
use sidestep_mesh::policy::plan::plan;

/// Drops CAP_PERFMON and CAP_SYS_ADMIN of the calling thread.
fn give_up_rights() {
    let mut mine = capabilities(None).unwrap();
    mine.effective -= CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
    set_capabilities(None, mine).unwrap();
    assert!(!probe::may_read_kernel());
}

#[test]
fn without_the_right_to_read_the_kernel() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("db", "select: {matchLabels: {app: db}}, ingress: [{action: allow, from: [{labels: {app: web}}]}]");
    world.policy("web", "select: {matchLabels: {app: web}}, egress: [{action: allow, to: [{labels: {app: db}}]}]");
    let plan = plan(&world.node.state, &mut world.identities, &[].into(), |_| true);
    let places = [&web, &db].map(|name| {
        let path = world.pods[name].namespace.path();
        (netns::cookie_of(&path).unwrap(), path, &plan.pods[name].compiled)
    });
    let options = Options { watch: true, ..world.node.options.clone() };
    std::thread::scope(|scope| {
        let installer = scope.spawn(|| {
            give_up_rights();
            services::install(&options, |_| Ok(())).unwrap();
            packets::install(&options).unwrap();
            let mut policies = Policies::open(&options.pins).unwrap();
            policies.write_identities(&plan.identities).unwrap();
            policies.use_identities().unwrap();
            for (cookie, path, compiled) in &places {
                policies.put(path, *cookie, "shop", &Addresses::default(), compiled).unwrap();
            }
        });
        installer.join().unwrap();
    });
    let to = |name| world.place(name, Family::V4, PORTS[0]);
    assert_eq!(world.call(&web, to(&db), Tcp), Seen::Reached);
    assert_eq!(world.call(&web, to(&web), Tcp), Seen::Refused, "its own addresses were not told");
    assert_eq!(world.call(&db, to(&web), Tcp), Seen::Reached);
    let watch = Watch::open(&options.pins).unwrap();
    assert!(!watch.read().unwrap().is_empty());
}
