//! `sidestep explain` says what actually happens.

use super::world::{ONLY_WEB, World, call};
use crate::agent::{VIP, at};
use sidestep_agent_api::{Caller, Protocol, Question, Verdict};
use sidestep_testkit::Pod;
use std::net::SocketAddr;
use std::process::{Child, Command};

struct Sleeper(Child);

impl Sleeper {
    fn of(pod: &Pod) -> Sleeper {
        Sleeper(pod.namespace.run(|| Command::new("sleep").arg("600").spawn().unwrap()))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn explained(world: &World, from: &Sleeper, to: SocketAddr) -> (Verdict, String) {
    let from = Caller::Process(from.0.id());
    let found = world.node.explain(Question::Explain { from, protocol: Protocol::Tcp, to });
    (found.verdict, found.steps.iter().map(|step| format!("{}: {}\n", step.rule, step.outcome)).collect())
}

#[test]
fn explanations_are_what_happens_and_name_policy_and_rule() {
    let mut world = World::new();
    world.node.web([&world.db]);
    world.node.wait(|node| node.show("web").is_ok_and(|web| web.ports[0].backend_count == 1));
    let sleepers = [Sleeper::of(&world.web), Sleeper::of(&world.stranger)];
    let cases = [
        ("one", ONLY_WEB, "policy default/one, ingress: what no rule fits"),
        (
            "one",
            "select: {matchLabels: {app: stranger}}, egress: [{action: allow, ports: [{port: 80}]}]",
            "policy default/one, egress: what no rule fits",
        ),
        (
            "one",
            "ingress: [{action: allow}, {action: deny, from: [{labels: {app: stranger}}], ports: [{port: 8080}]}]",
            "policy default/one, ingress 2: deny TCP 8080 from pods app=stranger: denies it",
        ),
        (
            "one",
            "select: {matchLabels: {app: stranger}}, egress: [{action: deny, to: [{cidr: 10.0.0.0/8}]}]",
            "10.0.0.0/8: denies it",
        ),
        ("one", "dryRun: true, default: {ingress: deny}", "would deny it: a dry run"),
    ];
    for (name, spec, why) in cases {
        world.policy(name, spec, if spec.contains("stranger}}, egress") { "stranger" } else { "db" });
        let mut all = String::new();
        for (pod, sleeper) in [(&world.web, &sleepers[0]), (&world.stranger, &sleepers[1])] {
            let happens = call(pod, &world.db).is_ok();
            for to in [SocketAddr::new(world.db.v4, 8080), at(VIP, 80)] {
                let (verdict, steps) = explained(&world, sleeper, to);
                let is_open = matches!(verdict, Verdict::Untouched | Verdict::Translated);
                assert_eq!(is_open, happens, "{spec}: {to}: {verdict:?}\n{steps}");
                all += &steps;
            }
        }
        assert!(all.contains(why), "{spec}:\n{all}");
    }
    // The receiving end alone.
    world.policy("one", ONLY_WEB, "db");
    for (source, expected) in [(&world.web, Verdict::Untouched), (&world.stranger, Verdict::DeniedIn)] {
        let (netns, source) = (world.db.namespace.name().to_string(), Some(source.v4));
        let (interface, protocol) = (None, Protocol::Tcp);
        let found = world.node.explain(Question::ExplainInbound { netns, port: 8080, interface, source, protocol });
        assert_eq!(found.verdict, expected, "{:?}", found.steps);
    }
}
