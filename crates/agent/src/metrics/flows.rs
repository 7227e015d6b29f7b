//! Metrics of connections that were counted without a proxy: by pair of workloads, and by Service.

use super::{Families, Labels, seconds};
use sidestep_agent_api::{Counted, Flows, Workload};
use std::borrow::Cow;
use std::fmt;

pub fn encode(flows: Option<&Flows>, families: &mut Families) -> fmt::Result {
    let Some(Flows { pairs, services }) = flows else { return Ok(()) };
    let pairs = pairs.iter().map(|pair| {
        let side = ("side", pair.side.as_str().into());
        let labels = [
            workload(["client_namespace", "client"], &pair.client),
            workload(["server_namespace", "server"], &pair.server),
        ];
        (labels.into_iter().flatten().chain([side]).collect(), &pair.counted)
    });
    set("flow", &pairs.collect::<Vec<_>>(), families)?;
    let services = services.iter().map(|one| {
        let [namespace, service] =
            [("namespace", one.namespace.as_str().into()), ("service", one.service.as_str().into())];
        (vec![namespace, service, ("side", one.side.as_str().into())], &one.counted)
    });
    set("service_flow", &services.collect::<Vec<_>>(), families)
}

fn workload<'a>(names: [&'static str; 2], of: &'a Workload) -> [(&'static str, Cow<'a, str>); 2] {
    [(names[0], of.namespace.as_str().into()), (names[1], of.workload.as_str().into())]
}

/// All metrics of one kind, such as `flow_connections`.
fn set(kind: &str, all: &[(Labels<'_>, &Counted)], families: &mut Families) -> fmt::Result {
    let named = |name: &str| format!("{kind}_{name}");
    let mut counters = |name: &str, help: &str, what: fn(&Counted) -> u64| {
        families.counters(&named(name), help, all.iter().map(|(labels, counted)| (labels.clone(), what(counted))))
    };
    counters("attempts", "Calls of connect(2), or connections accepted", |c| c.attempts)?;
    counters("connections", "TCP connections that came to be", |c| c.connections)?;
    counters("closed", "TCP connections that have ended", |c| c.closed)?;
    counters("sent_bytes", "Bytes that the counted end has sent and the other one acknowledged", |c| c.sent)?;
    counters("received_bytes", "Bytes that the counted end has received", |c| c.received)?;
    counters("rtt_samples", "How many round-trip times were looked at", |c| c.rtts)?;
    let rtts = all.iter().map(|(labels, counted)| (labels.clone(), seconds(counted.rtt_us)));
    families.float_counters(&named("rtt_seconds"), "Sum of smoothed round-trip times that were looked at", rtts)?;
    let failures = all.iter().flat_map(|(labels, counted)| {
        let kinds = counted.failures.iter();
        kinds.map(move |(kind, count)| {
            (labels.iter().cloned().chain([("kind", Cow::from(kind.as_str()))]).collect(), *count)
        })
    });
    families.counters(&named("failures"), "TCP connections that failed, by kind", failures)?;
    let dialled = all.iter().filter(|(_, counted)| counted.latencies.iter().any(|count| *count > 0));
    let latencies =
        dialled.map(|(labels, counted)| (labels.clone(), places(&counted.latencies), sum(&counted.latencies)));
    let help = "How long connect(2) took; the sum is estimated from the middles of the places";
    families.histograms(&named("connect_seconds"), help, latencies)
}

/// Merges pairs of the kernel half's buckets: 12 for each histogram are enough.
pub fn places(counts: &[u64]) -> Vec<(f64, u64)> {
    let last = counts.len().div_ceil(2) - 1;
    let bound = |place: usize| if place == last { f64::INFINITY } else { seconds(1 << (2 * place + 1)) };
    counts.chunks(2).enumerate().map(|(place, two)| (bound(place), two.iter().sum())).collect()
}

fn sum(counts: &[u64]) -> f64 {
    // Bucket i spans 2^(i-1) to 2^i microseconds; its middle is taken.
    counts.iter().enumerate().map(|(place, count)| *count as f64 * seconds(1 << place) * 0.75).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_add_up() {
        let mut counts = vec![0; 24];
        (counts[0], counts[1], counts[6], counts[23]) = (1, 2, 4, 8);
        let places = places(&counts);
        assert_eq!(places.len(), 12);
        assert_eq!(places[0], (2e-6, 3));
        assert_eq!(places[3], (128e-6, 4));
        assert_eq!(places[11], (f64::INFINITY, 8));
        assert!((sum(&counts[..7]) - (0.75e-6 + 2.0 * 1.5e-6 + 4.0 * 48e-6)).abs() < 1e-9);
    }
}
