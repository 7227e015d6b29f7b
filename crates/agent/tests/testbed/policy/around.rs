//! The bypass of the proxies of two pods.

use crate::agent::{Node, VIP, at};
use crate::yaml;
use sidestep_agent_api::{Caller, Protocol, Question, Verdict};
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Greeter, INBOUND, OUTBOUND, PROXY, ROOT, greeted};
use sidestep_testkit::tables::{Filler, table};
use std::net::SocketAddr;
use std::process::{Child, Command};

struct Pair {
    _programs: [Greeter; 3],
    client: Pod,
    server: Pod,
    sleeper: Child,
    node: Node,
}

impl Pair {
    fn new() -> Pair {
        let mut node = Node::new();
        let (client, server) = (node.routed(), node.routed());
        let programs = [Greeter::proxy(&client), Greeter::proxy(&server), Greeter::program(&server, 8080)];
        let sleeper = client.namespace.run(|| Command::new("sleep").arg("600").spawn().unwrap());
        let mut pair = Pair { _programs: programs, client, server, sleeper, node };
        pair.pods("", "");
        pair.service("\"true\"");
        pair.start();
        pair
    }

    /// When this returns the agent knows both pods.
    fn start(&mut self) {
        self.node.start();
        self.node.wait(|node| node.is_captured("client") && node.is_captured("server"));
    }

    /// Sets the pods' annotations.
    fn pods(&mut self, client: &str, server: &str) {
        self.node.file("client.yaml", &yaml::proxied("client", &self.client, "{app: client}", client));
        self.node.file("server.yaml", &yaml::proxied("server", &self.server, "{app: server}", server));
    }

    fn service(&mut self, bypass: &str) {
        let service = yaml::service("web", VIP, 80, "");
        let annotated = format!("{{name: web, annotations: {{sidestep.dev/bypass-proxy: {bypass}}}}}");
        let service = service.replace("{name: web}", &annotated);
        self.node.file("web.yaml", &(service + &yaml::slice("web", &[self.server.v4], 8080)));
    }

    /// The listener that the client's program reaches at the Service, and the one that the client's proxy reaches at the server.
    fn met(&self) -> [u16; 2] {
        let direct = SocketAddr::new(self.server.v4, 8080);
        let (program, proxy) = (greeted(&self.client, ROOT, at(VIP, 80)), greeted(&self.client, PROXY, direct));
        [program, proxy].map(|seen| seen.map_or(0, |seen| seen.listener))
    }

    fn explained(&self) -> (Verdict, String) {
        let from = Caller::Process(self.sleeper.id());
        let found = self.node.explain(Question::Explain { from, protocol: Protocol::Tcp, to: at(VIP, 80) });
        (found.verdict, format!("{:?}", found.steps))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
    }
}

#[test]
fn a_service_that_asks_is_led_around_both_proxies_and_a_pod_that_requires_its_proxy_is_not() {
    let mut pair = Pair::new();
    let shown = |node: &Node| node.show("web").unwrap().bypass;
    let is_met = |pair: &mut Pair, met: [u16; 2]| {
        for _ in 0..2000 {
            if pair.met() == met {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        panic!("{:?} where {met:?} is expected\n{}", pair.met(), pair.node.log());
    };
    is_met(&mut pair, [8080, 8080]);
    assert!(shown(&pair.node).is_some_and(|bypass| bypass.inbound && bypass.refused.is_none()));
    let (verdict, steps) = pair.explained();
    assert!(verdict == Verdict::Translated && steps.contains("yes: TCP 10.96.0.10:80 needs none"), "{steps}");
    assert!(pair.node.check().is_well(), "{:?}", pair.node.check());
    // A new agent keeps the bypass.
    pair.node.kill();
    assert_eq!(pair.met(), [8080, 8080]);
    pair.start();
    assert_eq!(pair.met(), [8080, 8080]);
    // The client requires its proxy.
    pair.pods("sidestep.dev/require-proxy: 'true'", "");
    is_met(&mut pair, [OUTBOUND, INBOUND]);
    let (verdict, steps) = pair.explained();
    assert!(verdict == Verdict::CapturedOutbound && steps.contains("default/client requires its proxy"), "{steps}");
    pair.node.kill();
    assert_eq!(pair.met(), [OUTBOUND, INBOUND]);
    pair.start();
    assert_eq!(pair.met(), [OUTBOUND, INBOUND]);
    // A policy requires the server's proxy: no client bypasses it.
    pair.pods("", "");
    is_met(&mut pair, [8080, 8080]);
    let requiring = yaml::policy("server", "select: {matchLabels: {app: server}}, requireProxy: true");
    pair.node.file("policy.yaml", &requiring);
    is_met(&mut pair, [OUTBOUND, INBOUND]);
    let refused = shown(&pair.node).unwrap().refused.unwrap();
    assert!(refused.contains("the pod default/server requires its proxy"), "{refused}");
    let (verdict, steps) = pair.explained();
    assert!(verdict == Verdict::CapturedOutbound && steps.contains("no, though default/web asks for it"), "{steps}");
    assert!(pair.node.check().problems.iter().any(|problem| problem.contains("default/web is not led around proxies")));
    // Bypass for clients only, and none.
    std::fs::remove_file(pair.node.services().join("policy.yaml")).unwrap();
    pair.service("outbound");
    is_met(&mut pair, [INBOUND, INBOUND]);
    pair.service("\"false\"");
    is_met(&mut pair, [OUTBOUND, INBOUND]);
    assert!(shown(&pair.node).is_none() && pair.node.check().is_well());
}

/// An agent that cannot write who requires its proxy leads nobody around proxies, in no moment.
#[test]
fn while_the_tables_have_no_room_for_those_that_require_their_proxy_nobody_is_led_around_it() {
    let mut pair = Pair::new();
    pair.pods("sidestep.dev/require-proxy: 'true'", "");
    let Pair { client, server, node, .. } = &mut pair;
    let server = SocketAddr::new(server.v4, 8080);
    let forwarded = || greeted(client, PROXY, server).unwrap().listener;
    let never_around_until = |node: &mut Node, is_over: &dyn Fn(&Node) -> bool| {
        node.wait(|node| {
            assert_eq!(forwarded(), INBOUND, "{}", node.log());
            is_over(node)
        });
    };
    node.wait(|node| node.check().is_well() && forwarded() == INBOUND);
    node.kill();
    let _filler = Filler::new(table(&node.pins(), "identities"));
    node.start();
    never_around_until(node, &|node| node.log().contains("map identities: put"));
    // The agent removes what is of no pod, and tries again.
    never_around_until(node, &|node| node.check().is_well());
    pair.pods("", "");
    let Pair { node, client, .. } = &mut pair;
    node.wait(|_| greeted(client, PROXY, server).unwrap().listener == 8080);
}
