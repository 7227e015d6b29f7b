//! Explains what happens to the first packet of a connection that arrives at a device of the node, as the program there decides.

use super::{Result, Steps, chosen, look_up, other_ports, owner};
use crate::report;
use crate::view::View;
use sidestep_agent_api::{Explanation, Verdict};
use sidestep_mesh::address::{Address, Protocol};
use sidestep_mesh::plane::{Frontend, FrontendKey, Scope};
use sidestep_mesh::reconcile::Programmed;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// A packet of a client.
pub struct Packet {
    pub from: IpAddr,
    pub protocol: Protocol,
    pub to: SocketAddr,
}

pub fn explain(view: &View, packet: &Packet) -> Result<Explanation> {
    let mut steps = Steps::default();
    if !view.settings.replace_kube_proxy {
        steps.say("packets to Services", "are kube-proxy's: the agent runs without --replace-kube-proxy");
        return Ok(steps.end(Verdict::Untouched));
    }
    if !view.translates_packets() {
        steps.say("packets to Services", "are not translated at all devices now (`sidestep service check`)");
    }
    let is_pod = is_pod(view, packet.from, &mut steps);
    let Some((key, frontend)) = find(view, packet, is_pod, &mut steps)? else {
        steps.say("destination", "no Service's: the packet is routed as any other");
        return Ok(steps.end(Verdict::Untouched));
    };
    if !may_use(view, &key, &frontend, packet.from, &mut steps) {
        return Ok(named(steps.end(Verdict::Dropped), view, &key));
    }
    if frontend.count == 0 {
        return Ok(named(without_endpoint(&frontend, steps), view, &key));
    }
    Ok(named(translated(view, &frontend, (packet.from, is_pod), steps)?, view, &key))
}

fn is_pod(view: &View, from: IpAddr, steps: &mut Steps) -> bool {
    let from = from.to_canonical();
    let network = view.settings.cluster_cidr.iter().find(|network| network.contains(&from));
    let outcome = match network {
        Some(network) => format!("a pod's: in {network}"),
        None if view.settings.cluster_cidr.is_empty() => "external, as all are without --cluster-cidr".into(),
        None => "external: not in --cluster-cidr".into(),
    };
    steps.say(format!("sender {from}"), outcome);
    network.is_some()
}

/// The frontend, with its flags as they count for this sender. Mirrors `find_external`.
fn find(view: &View, packet: &Packet, is_pod: bool, steps: &mut Steps) -> Result<Option<(FrontendKey, Frontend)>> {
    let address = Address::from(packet.to.ip().to_canonical());
    let exact = FrontendKey { address, port: packet.to.port(), protocol: packet.protocol, scope: Scope::External };
    let of_node = view.maps.node_addresses()?.contains(&address);
    steps.say(format!("{address} is this node"), if of_node { "yes: NodePorts count" } else { "no" });
    if let Some((key, frontend)) = find_in(view, exact, [Scope::External, Scope::ExternalNode], of_node)? {
        let of_pods = match is_pod && !frontend.masquerade {
            true => find_in(view, exact, [Scope::Pod, Scope::PodNode], of_node)?,
            false => None,
        };
        let (key, frontend) = of_pods.unwrap_or((key, frontend));
        steps.say(format!("frontend {key}"), owner(view, &key));
        return Ok(Some((key, frontend)));
    }
    let cluster = FrontendKey { scope: Scope::Address, ..exact };
    let Some(mut frontend) = look_up(view, &cluster)? else {
        steps.say(format!("frontend {cluster}"), other_ports(view, &cluster));
        return Ok(None);
    };
    steps.say(format!("frontend {cluster}"), owner(view, &cluster));
    frontend.masquerade |= !is_pod;
    Ok(Some((cluster, frontend)))
}

fn find_in(
    view: &View,
    exact: FrontendKey,
    [scope, of_all]: [Scope; 2],
    of_node: bool,
) -> Result<Option<(FrontendKey, Frontend)>> {
    let key = FrontendKey { scope, ..exact };
    if let Some(found) = look_up(view, &key)? {
        return Ok(Some((key, found)));
    }
    let key = FrontendKey { address: exact.address.family().unspecified(), scope: of_all, ..exact };
    Ok(if of_node { look_up(view, &key)?.map(|found| (key, found)) } else { None })
}

fn may_use(view: &View, key: &FrontendKey, frontend: &Frontend, from: IpAddr, steps: &mut Steps) -> bool {
    if !frontend.restricted {
        return true;
    }
    let is_its = |port: &&&Programmed| port.service == frontend.service && port.table.frontends.contains(key);
    let ports = view.reconciler.ports();
    let Some(port) = ports.iter().find(is_its) else {
        steps.say("loadBalancerSourceRanges", "as an earlier agent programmed them: not known");
        return true;
    };
    let range = port.table.source_ranges.iter().find(|range| range.contains(&from.to_canonical()));
    let outcome = match range {
        Some(range) => format!("{range} has the sender"),
        None => "none has the sender: dropped".into(),
    };
    steps.say("loadBalancerSourceRanges", outcome);
    range.is_some()
}

fn without_endpoint(frontend: &Frontend, mut steps: Steps) -> Explanation {
    if frontend.elsewhere {
        steps.say("backends", "none on this node, and the traffic policy is Local: dropped");
        return steps.end(Verdict::Dropped);
    }
    steps.say("backends", "none: answered by ICMP's \"port unreachable\" (`sidestep service show` says why)");
    steps.end(Verdict::Refused)
}

fn translated(
    view: &View,
    frontend: &Frontend,
    (from, is_pod): (IpAddr, bool),
    mut steps: Steps,
) -> Result<Explanation> {
    let from = Address::from(from);
    let endpoints: BTreeSet<_> =
        view.maps.backends_of(frontend).into_iter().map(|number| view.maps.endpoint(number)).collect();
    steps.say("backends", format!("{}, {}", endpoints.len(), chosen(frontend)));
    let mut judging = 0;
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.address != from) {
        judging += usize::from(view.maps.is_isolated(endpoint.address)?);
    }
    steps.say("source that the backend sees", source(frontend, is_pod, [judging, endpoints.len()]));
    let backends = endpoints.into_iter().map(|endpoint| report::backend(view, endpoint, 1)).collect();
    Ok(Explanation { backends, ..steps.end(Verdict::Translated) })
}

/// `judging`: how many of all backends have policies about their clients.
fn source(frontend: &Frontend, is_pod: bool, [judging, all]: [usize; 2]) -> String {
    if frontend.masquerade {
        return match judging {
            0 => "an address of the node, so that the answers come back through it".into(),
            _ if judging == all => "the client's own: policies for incoming traffic select the backend".into(),
            _ => format!(
                "an address of the node; the client's own at {judging}, which policies for incoming traffic select"
            ),
        };
    }
    match is_pod {
        true => "the pod's own; the node's if it is the backend itself".into(),
        false => "the client's own: externalTrafficPolicy is Local".into(),
    }
}

fn named(explanation: Explanation, view: &View, key: &FrontendKey) -> Explanation {
    Explanation { service: Some(owner(view, key)), ..explanation }
}
