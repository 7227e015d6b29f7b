//! Whether a connection is led around a proxy, and why not.

use crate::explain::Steps;
use crate::view::View;
use sidestep_mesh::address::{Address, Protocol};
use sidestep_mesh::object::{Bypass, Name};
use sidestep_mesh::plane::{FrontendKey, Scope};
use std::net::{IpAddr, SocketAddr};

/// Of what the rules of this pod would give to its proxy.
pub fn outbound(view: &View, pod: &Name, to: SocketAddr, protocol: Protocol, steps: &mut Steps) -> bool {
    let Some(key) = wanted(view, to, protocol, steps) else { return false };
    if !view.policing.flags(&key).outbound {
        return false;
    }
    if view.policing.requires_proxy(pod) {
        steps.say("round the proxy", format!("no: {pod} requires its proxy"));
        return false;
    }
    steps.say("round the proxy", format!("yes: {key} needs none (sidestep.dev/bypass-proxy)"));
    true
}

/// Of what the server's rules would give to its proxy; `from` is the client's address, if it is known.
pub fn inbound(view: &View, pod: &Name, at: SocketAddr, from: Option<IpAddr>, steps: &mut Steps) -> bool {
    let key = key(at.ip(), at.port(), Scope::Address);
    if !view.policing.is_whole() || !view.policing.flags(&key).inbound {
        return false;
    }
    let client = from.and_then(|ip| view.policing.plan.identities.get(&Address::from(ip.to_canonical())));
    let requiring = if client.is_some_and(|client| client.requires_proxy) {
        Some("the client")
    } else {
        view.policing.requires_proxy(pod).then_some("the pod")
    };
    match requiring {
        Some(who) => steps.say("round the proxy", format!("no: {who} requires its proxy")),
        None => steps.say("round the proxy", format!("yes: {key} needs none (sidestep.dev/bypass-proxy)")),
    }
    requiring.is_none()
}

/// The address at which a Service asks for it. None: there is none, or it asks in vain.
fn wanted(view: &View, to: SocketAddr, protocol: Protocol, steps: &mut Steps) -> Option<FrontendKey> {
    if protocol != Protocol::Tcp {
        return None;
    }
    let (exact, of_node) = (key(to.ip(), to.port(), Scope::Address), key(to.ip(), to.port(), Scope::Node));
    let is_node = || view.maps.node_addresses().is_ok_and(|known| known.contains(&exact.address));
    let asked = [exact, of_node].into_iter().find(|key| view.policing.flags(key).outbound);
    let asked = asked.filter(|key| key.scope == Scope::Address || is_node());
    if asked.is_some() && !view.policing.is_whole() {
        steps.say("round the proxy", "not yet: not all files have been read");
        return None;
    }
    if asked.is_none() {
        let owner = [exact, of_node].iter().find_map(|key| view.reconciler.owner(key)).map(|port| &port.service);
        if let Some(name) = owner.filter(|name| asks(view, name)) {
            let why = view.policing.refused.get(name).map_or("it has no address here".into(), ToString::to_string);
            steps.say("round the proxy", format!("no, though {name} asks for it: {why}"));
        }
    }
    asked
}

fn asks(view: &View, name: &Name) -> bool {
    view.state.service(name).is_some_and(|service| service.bypass != Bypass::Nobody)
}

fn key(ip: IpAddr, port: u16, scope: Scope) -> FrontendKey {
    let address = Address::from(ip.to_canonical());
    let address = if scope == Scope::Node { address.family().unspecified() } else { address };
    FrontendKey { address, port, protocol: Protocol::Tcp, scope }
}
