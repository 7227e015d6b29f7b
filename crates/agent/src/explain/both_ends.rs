//! Explains what policies of both ends say about a call to each of the endpoints where it may go.

use super::around;
use super::captured;
use super::decided;
use super::{Result, Steps};
use crate::view::View;
use sidestep_agent_api as api;
use sidestep_agent_api::Verdict;
use sidestep_ebpf::capture::pod_network;
use sidestep_mesh::address::Protocol;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

/// The caller's namespace and addresses.
pub struct Caller {
    netns: u64,
    own: BTreeSet<IpAddr>,
}

/// Endpoints that are explained in full; the others are summed up.
const TOLD: usize = 3;
/// Time for the others. The agent's main thread explains, and any tenant decides how many endpoints a Service and how many rules a
/// policy has.
const PATIENCE: Duration = Duration::from_secs(1);

impl Caller {
    /// None: only the cgroup is known.
    pub fn new(caller: &api::Caller) -> Result<Option<Caller>> {
        let api::Caller::Process(pid) = caller else { return Ok(None) };
        let path = format!("/proc/{pid}/ns/net");
        let (netns, network) = pod_network::read_named(Path::new(&path))?;
        Ok(Some(Caller { netns, own: network.addresses.into_iter().collect() }))
    }

    fn stays_inside(&self, to: IpAddr) -> bool {
        let to = to.to_canonical();
        to.is_loopback() || to.is_unspecified() || self.own.contains(&to)
    }

    /// The address from which it calls there.
    fn source(&self, to: IpAddr) -> Option<IpAddr> {
        let is_like = |ip: &&IpAddr| ip.is_ipv4() == to.to_canonical().is_ipv4() && !ip.is_loopback();
        let is_global = |ip: &&IpAddr| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        self.own.iter().filter(is_like).find(is_global).copied()
    }
}

/// None: policies allow the call to at least one of the endpoints, as far as that is known.
pub fn of_all(
    view: &View,
    from: Option<&Caller>,
    places: &[SocketAddr],
    protocol: Protocol,
    steps: &mut Steps,
) -> Result<Option<Verdict>> {
    let Some(from) = from else {
        if view.policing.plan.pods.is_empty() {
            return Ok(None);
        }
        steps.say("policies", "not known of a cgroup: ask for a process");
        return Ok(None);
    };
    let mut told = Vec::new();
    let verdicts = in_time(places, PATIENCE, |place| {
        let mut own = Steps::default();
        let verdict = of_one(view, from, place, protocol, &mut own)?;
        if told.len() < TOLD {
            told.push(own);
        }
        Ok(verdict)
    })?;
    told.into_iter().for_each(|own| steps.add(own));
    let denied: Vec<Verdict> = verdicts.iter().flatten().copied().collect();
    if places.len() > 1 && !denied.is_empty() {
        steps.say("policies", format!("deny {} of {} backends", denied.len(), verdicts.len()));
    }
    let unknown = places.len() - verdicts.len();
    if unknown > 0 {
        steps.say("policies", format!("not compared with {unknown} further backends, which would take too long"));
    }
    Ok(if denied.len() == places.len() { denied.first().copied() } else { None })
}

/// What is found of the first endpoints, and of as many others as there is time for.
fn in_time<T>(
    places: &[SocketAddr],
    patience: Duration,
    mut find: impl FnMut(SocketAddr) -> Result<T>,
) -> Result<Vec<T>> {
    let begun = Instant::now();
    let has_time = |number: usize| number < TOLD || begun.elapsed() < patience;
    places.iter().enumerate().take_while(|(number, _)| has_time(*number)).map(|(_, place)| find(*place)).collect()
}

fn of_one(
    view: &View,
    from: &Caller,
    to: SocketAddr,
    protocol: Protocol,
    steps: &mut Steps,
) -> Result<Option<Verdict>> {
    if from.stays_inside(to.ip()) {
        return Ok(None);
    }
    if decided::out(view, from.netns, to, protocol, steps)?.is_some() {
        return Ok(Some(Verdict::DeniedOut));
    }
    let (Some(pod), Some(source)) = (decided::pod_at(view, to.ip()), from.source(to.ip())) else { return Ok(None) };
    if decided::into(view, &pod, source, protocol, to.port(), steps).is_some() {
        return Ok(Some(Verdict::DeniedIn));
    }
    if protocol == Protocol::Tcp && captured::is_captured(view, &pod.name) {
        let at = SocketAddr::new(to.ip().to_canonical(), to.port());
        if !around::inbound(view, &pod.name, at, Some(source), steps) {
            steps
                .say(format!("at {}", pod.name), "the rules of its Capture say whether its proxy takes it (--inbound)");
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_endpoints_take_no_longer_than_there_is_time_for() {
        let places: Vec<SocketAddr> = (1..=100).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect();
        let found = |patience| in_time(&places, patience, |place| Ok(place.port())).unwrap();
        assert_eq!(found(Duration::ZERO), [1, 2, 3], "those that are told");
        assert_eq!(found(Duration::from_secs(600)).len(), 100);
        assert_eq!(in_time(&places[..2], Duration::ZERO, |place| Ok(place.port())).unwrap(), [1, 2]);
    }
}
