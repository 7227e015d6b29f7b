//! Converts state and programmed tables to answers.

use crate::policies;
use crate::view::View;
use sidestep_agent_api as api;
use sidestep_ebpf::error::Result;
use sidestep_ebpf::plane::{Load, OF_CAPTURE};
use sidestep_ebpf::splice;
use sidestep_mesh::address::{Endpoint, Family, Protocol};
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::{Name, Selection, Service, Skipped, SliceEndpoint};
use sidestep_mesh::plane::{DataPlane, Scope};
use sidestep_mesh::reconcile::{Problem, Programmed};
use sidestep_mesh::table::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

pub fn status(view: &View) -> Result<api::Status> {
    let (used, sizes) = (view.reconciler.used(), view.maps.sizes());
    let fill = |table: &str, used, size| api::Fill { table: table.into(), used, size };
    let reasons = view.maps.reasons()?.into_iter();
    Ok(api::Status {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        node: view.reconciler.node().name.to_string(),
        zone: view.reconciler.node().zone.as_deref().map(Into::into),
        cgroup: view.settings.cgroup.clone(),
        source: view.source(),
        attached: view.is_attached(),
        tables: [
            fill("frontends", used.frontends, sizes.frontends),
            fill("slots", used.slots, sizes.slots),
            fill("backends", used.backends, sizes.backends),
            fill("members", used.members, sizes.members),
            fill("source_ranges", used.sources, sizes.sources),
            fill("services", used.services, sizes.services),
        ]
        .into_iter()
        .chain(view.pods.figures.tables.iter().cloned())
        .collect(),
        reasons: reasons.map(|(reason, count)| api::Count { reason: reason.into(), count }).collect(),
        reconcile: view.reconcile.clone(),
        node_addresses: view.maps.node_addresses()?.iter().map(ToString::to_string).collect(),
    })
}

/// Every Service, in the order of names.
pub fn services(view: &View) -> Result<Vec<api::Service>> {
    let mut problems: BTreeMap<&Name, Vec<String>> = BTreeMap::new();
    for (name, problem) in view.reconciler.problems() {
        problems.entry(name).or_default().push(described(problem));
    }
    let known: BTreeMap<&Name, &Service> = view.state.services().map(|service| (&service.name, service)).collect();
    known.into_values().map(|known| service(view, known, problems.remove(&known.name).unwrap_or_default())).collect()
}

/// One Service in full detail.
pub fn show(view: &View, known: &Service) -> Result<api::Service> {
    let name = &known.name;
    let mine = view.reconciler.problems().filter(|(whose, _)| *whose == name);
    let mut shown = service(view, known, mine.map(|(_, problem)| described(problem)).collect())?;
    for (port, programmed) in shown.ports.iter_mut().zip(view.reconciler.ports_of(name)) {
        port.backends = backends(view, programmed);
        port.unused = unused(view, programmed);
    }
    Ok(shown)
}

fn service(view: &View, known: &Service, problems: Vec<String>) -> Result<api::Service> {
    let ports = view.reconciler.ports_of(&known.name).iter();
    Ok(api::Service {
        namespace: known.name.namespace.to_string(),
        name: known.name.name.to_string(),
        ports: ports.map(|programmed| port(view, programmed)).collect::<Result<_>>()?,
        bypass: policies::bypass(view, known),
        problems,
        left: remarks(view, known),
    })
}

/// What is not programmed of the Service and of its slices.
fn remarks(view: &View, known: &Service) -> Vec<String> {
    let of = |left: &Skipped| format!("{}: {}", left.what, left.why);
    let slices = view.state.slices(&known.name).into_iter();
    let theirs = slices
        .flat_map(|slice| slice.left.iter().map(move |left| format!("EndpointSlice {}: {}", slice.name, of(left))));
    known.left.iter().map(of).chain(theirs).collect()
}

pub fn described(problem: &Problem) -> String {
    match problem {
        Problem::Taken { frontend, owner } => format!("{frontend} belongs to {owner} already"),
        Problem::Full { port, what, of_namespace: false } => {
            format!("{port} is left to the kernel: there is no more room for {what}")
        }
        Problem::Full { port, what, of_namespace: true } => {
            let namespace = &port.service.namespace;
            format!(
                "{port} is left to the kernel: namespace {namespace} would hold more {what} than it leaves to others"
            )
        }
    }
}

pub fn protocol(of: Protocol) -> api::Protocol {
    match of {
        Protocol::Tcp => api::Protocol::Tcp,
        Protocol::Udp => api::Protocol::Udp,
    }
}

fn port(view: &View, programmed: &Programmed) -> Result<api::Port> {
    let frontends = programmed.frontends().filter(|(key, _)| view.reconciler.owner(key) == Some(&programmed.key));
    Ok(api::Port {
        name: programmed.key.port.to_string(),
        protocol: protocol(programmed.key.protocol),
        family: number(programmed.key.family),
        frontends: frontends.map(|(key, _)| frontend(key, programmed.table.list.len())).collect(),
        policy: policy(programmed.key.policy).into(),
        selection: selection(programmed.table.selection).into(),
        affinity_seconds: programmed.table.affinity_seconds,
        backend_count: programmed.table.endpoints().len(),
        counters: counters(view, programmed)?,
        backends: Vec::new(),
        unused: Vec::new(),
    })
}

fn counters(view: &View, programmed: &Programmed) -> Result<api::Counters> {
    let counted = view.maps.counters(programmed.service)?;
    Ok(api::Counters { picks: counted.picks, affinity_hits: counted.affinity_hits, refused: counted.refused })
}

fn number(of: Family) -> u8 {
    match of {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

fn frontend(key: sidestep_mesh::plane::FrontendKey, backends: usize) -> api::Frontend {
    let address = match key.scope {
        Scope::Address => Endpoint { address: key.address, port: key.port }.to_string(),
        Scope::Node => format!("NodePort {}", key.port),
        _ => key.to_string(),
    };
    api::Frontend { address, backends }
}

fn policy(of: Policy) -> &'static str {
    match of {
        Policy::Cluster => "Cluster",
        Policy::Local => "Local",
    }
}

fn selection(of: Selection) -> &'static str {
    match of {
        Selection::Random => "random",
        Selection::Weighted => "weighted",
        Selection::LeastConnections => "least-connections",
    }
}

pub fn socket_address(of: Endpoint) -> SocketAddr {
    SocketAddr::new(of.address.ip(), of.port)
}

fn backends(view: &View, programmed: &Programmed) -> Vec<api::Backend> {
    programmed.table.list.iter().map(|one| backend(view, one.endpoint, one.weight)).collect()
}

pub fn backend(view: &View, endpoint: Endpoint, weight: u32) -> api::Backend {
    let load = view.reconciler.backend(&endpoint).map(|number| view.maps.load(number)).unwrap_or_default();
    loaded(endpoint, weight, load)
}

fn loaded(endpoint: Endpoint, weight: u32, load: Load) -> api::Backend {
    api::Backend { address: socket_address(endpoint), weight, active: load.active, picks: load.picks }
}

/// Endpoints in the port's family that are not among its backends.
fn unused(view: &View, programmed: &Programmed) -> Vec<api::Unused> {
    let used: BTreeSet<_> = programmed.table.endpoints().iter().map(|endpoint| endpoint.address).collect();
    let slices = view.state.slices(&programmed.key.service);
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    let others =
        endpoints.filter(|e| Family::of(e.address) == programmed.key.family && !used.contains(&e.address.into()));
    others.map(|e| api::Unused { address: e.address.to_string(), why: why_unused(e).into() }).collect()
}

fn why_unused(endpoint: &SliceEndpoint) -> &'static str {
    match endpoint {
        SliceEndpoint { terminating: true, serving: true, .. } => "terminating, and there are others that are ready",
        SliceEndpoint { terminating: true, .. } => "terminating",
        SliceEndpoint { ready: false, .. } => "not ready",
        _ => "ready, but not for this node: topology hints, traffic policy, weight 0 or another port",
    }
}

/// There may be thousands of Services, so only what metrics need is computed.
pub fn metrics(view: &View) -> Result<api::Metrics> {
    let ports = view.reconciler.ports();
    let backends = view.reconciler.backends().map(|(endpoint, number)| (endpoint, view.maps.load(number)));
    let used = backends.filter(|(_, load)| load.active > 0 || load.picks > 0);
    let mut used: Vec<_> = used.map(|(endpoint, load)| loaded(*endpoint, 1, load)).collect();
    used.sort_unstable_by_key(|backend| backend.address);
    let is_known = |name: &Name| view.state.service(name).is_some();
    Ok(api::Metrics {
        status: status(view)?,
        services: view.state.services().count(),
        service_problems: view.reconciler.problems().filter(|(name, _)| is_known(name)).count(),
        ports: ports.into_iter().map(|programmed| figures(view, programmed)).collect::<Result<_>>()?,
        captures: captures(view)?,
        backends: used,
        policing: policies::figures(view),
        flows: None,
        splice: splice::status(&view.settings.pins)?.map(spliced),
    })
}

fn figures(view: &View, programmed: &Programmed) -> Result<api::PortFigures> {
    let key = &programmed.key;
    Ok(api::PortFigures {
        namespace: key.service.namespace.to_string(),
        service: key.service.name.to_string(),
        port: key.port.to_string(),
        protocol: protocol(key.protocol),
        family: number(key.family),
        policy: policy(key.policy).into(),
        counters: counters(view, programmed)?,
    })
}

fn spliced(status: splice::Status) -> api::Splice {
    let reasons = status.reasons.into_iter();
    api::Splice {
        paused: status.paused,
        connections: status.connections,
        messages: status.redirected.messages,
        bytes: status.redirected.bytes,
        reasons: reasons.map(|(reason, count)| api::Count { reason: reason.into(), count }).collect(),
    }
}

/// Every captured pod, in the order of names.
pub fn captures(view: &View) -> Result<api::Captures> {
    let listening = view.pods.tables.all_listening();
    let of = |netns: Option<u64>| netns.and_then(|cookie| listening.get(&cookie)).copied().unwrap_or_default();
    let known: BTreeMap<&Name, &Capture> = view.state.captures().map(|capture| (&capture.name, capture)).collect();
    let captures = known.into_values().map(|capture| {
        let status = view.pods.statuses.get(&capture.name);
        let [outbound_listeners, inbound_listeners] = of(status.and_then(|status| status.netns));
        api::Capture {
            namespace: capture.name.namespace.to_string(),
            name: capture.name.name.to_string(),
            netns: capture.netns.to_string(),
            cookie: status.and_then(|status| status.netns),
            captured: status.is_some_and(|status| status.applied.is_some()),
            outbound_port: capture.rules.outbound_port,
            inbound_port: capture.rules.inbound_port,
            outbound_listeners,
            inbound_listeners,
            troubles: status.map_or_else(|| vec!["not visited yet".into()], |status| status.troubles.clone()),
        }
    });
    let others = view.pods.tables.fill_by_others().into_iter();
    let others = others.map(|f| api::Fill { table: f.table.into(), used: f.used as u32, size: f.room });
    Ok(api::Captures {
        captures: captures.collect(),
        reasons: view
            .maps
            .reasons()?
            .into_iter()
            .filter(|(reason, _)| OF_CAPTURE.contains(reason))
            .map(|(reason, count)| api::Count { reason: reason.into(), count })
            .collect(),
        tables: view.pods.figures.tables.iter().cloned().chain(others).collect(),
        ended: view.pods.figures.ended,
    })
}
