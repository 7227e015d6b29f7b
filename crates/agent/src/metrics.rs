//! Metrics in Prometheus' text format, over HTTP. They are computed for each request.

mod flows;
mod probes;
mod process;
mod server;

use crate::heard::Heard;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use sidestep_agent_api::{Backend, Captures, Counters, Metrics, PolicingFigures, PortFigures, Protocol, Splice};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

pub use server::Agent;

fn text(metrics: Metrics, heard: &Heard) -> String {
    let mut own = Registry::with_prefix("sidestep");
    own.register_collector(Box::new(Snapshot { metrics, heard: heard.ages() }));
    let mut process = Registry::default();
    process.register_collector(Box::new(process::Process));
    let mut text = String::new();
    let encoded = encode_registry(&mut text, &own).and_then(|()| encode_registry(&mut text, &process));
    encoded.and_then(|()| encode_eof(&mut text)).expect("writing to a String cannot fail");
    text
}

#[derive(Debug)]
struct Snapshot {
    metrics: Metrics,
    /// Of each watched resource, how long ago the API server was heard of it.
    heard: Vec<(&'static str, Duration)>,
}

/// The commit that was built, if the build says it.
const COMMIT: Option<&str> = option_env!("SIDESTEP_COMMIT");

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut families = Families(&mut encoder);
        let metrics = &self.metrics;
        services(&metrics.ports, &mut families)?;
        backends(&metrics.backends, &mut families)?;
        captures(&metrics.captures, &mut families)?;
        policing(&metrics.policing, &mut families)?;
        flows::encode(metrics.flows.as_ref(), &mut families)?;
        splice(metrics.splice.as_ref(), &mut families)?;
        watches(&self.heard, &mut families)?;
        build(&mut families)?;
        node(metrics, &mut families)
    }
}

fn watches(heard: &[(&'static str, Duration)], families: &mut Families) -> fmt::Result {
    let ages = heard.iter().map(|(resource, age)| (vec![("resource", (*resource).into())], age.as_secs_f64()));
    let help = "How long ago the API server was last heard of these objects: by a list, an event or a bookmark";
    families.float_gauges("watch_staleness_seconds", help, ages)
}

fn build(families: &mut Families) -> fmt::Result {
    let commit = COMMIT.map(|commit| ("commit", commit.into()));
    let labels: Labels = [("version", env!("CARGO_PKG_VERSION").into())].into_iter().chain(commit).collect();
    families.gauges("build_info", "The version of this agent", std::iter::once((labels, 1)))
}

fn services(ports: &[PortFigures], families: &mut Families) -> fmt::Result {
    let counted = |what: fn(&Counters) -> u64| {
        ports.iter().map(move |port| {
            let protocol = match port.protocol {
                Protocol::Tcp => "TCP",
                Protocol::Udp => "UDP",
            };
            let labels: Labels = vec![
                ("namespace", port.namespace.as_str().into()),
                ("service", port.service.as_str().into()),
                ("port", port.port.as_str().into()),
                ("protocol", protocol.into()),
                ("family", if port.family == 4 { "IPv4" } else { "IPv6" }.into()),
                ("policy", port.policy.as_str().into()),
            ];
            (labels, what(&port.counters))
        })
    };
    families.counters("service_picks", "Connections and flows that were given a backend", counted(|c| c.picks))?;
    let hits = counted(|c| c.affinity_hits);
    families.counters("service_affinity_hits", "Picks that repeated the last one of the same client", hits)?;
    families.counters("service_refused", "Connections refused since there is no endpoint", counted(|c| c.refused))
}

fn backends(backends: &[Backend], families: &mut Families) -> fmt::Result {
    let of = |what: fn(&Backend) -> u64| {
        backends.iter().map(move |b| (vec![("backend", b.address.to_string().into())], what(b)))
    };
    families.gauges(
        "backend_active_connections",
        "Sockets connected to a backend through Services",
        of(|b| b.active),
    )?;
    families.counters("backend_picks", "Connections and flows that were given to a backend", of(|b| b.picks))
}

/// If a pod's proxy does not listen, the pod receives nothing, so pods without listeners are counted.
fn captures(captures: &Captures, families: &mut Families) -> fmt::Result {
    let one = |value: u64| std::iter::once((Labels::new(), value));
    let captured = || captures.captures.iter().filter(|capture| capture.captured);
    families.gauges(
        "captured_pods",
        "Pods whose connections go through their proxy",
        one(captured().count() as u64),
    )?;
    let missing = captured().map(|capture| {
        let labels = vec![("namespace", capture.namespace.as_str().into()), ("name", capture.name.as_str().into())];
        let missing = usize::from(capture.outbound_listeners == 0) + usize::from(capture.inbound_listeners == 0);
        (labels, missing as u64)
    });
    families.gauges("capture_listeners_missing", "Ports at which the pod's proxy does not listen, of two", missing)?;
    let troubles = captures.captures.iter().map(|capture| capture.troubles.len() as u64).sum();
    families.gauges("capture_troubles", "What is not as files of kind Capture want it", one(troubles))?;
    families.counters("captured_namespaces_ended", "Captured network namespaces that have ended", one(captures.ended))
}

fn policing(figures: &PolicingFigures, families: &mut Families) -> fmt::Result {
    let one = |value: usize| std::iter::once((Labels::new(), value as u64));
    families.gauges("policies", "Documents of kind Policy that are known", one(figures.policies))?;
    families.gauges(
        "enforced_pods",
        "Pods whose connections are enforced as their policies want it",
        one(figures.enforced),
    )?;
    let unenforced = "Pods that policies select and that are not enforced as these want it";
    families.gauges("unenforced_pods", unenforced, one(figures.unenforced))?;
    let trouble = "Whether identities, or ways round proxies, are not as they should be";
    families.gauges("policy_trouble", trouble, one(figures.trouble.into()))?;
    families.gauges("bypassed_services", "Services whose connections go around proxies", one(figures.bypassed))?;
    let refused = "Services that ask to be led around proxies in vain";
    families.gauges("bypass_refused_services", refused, one(figures.bypass_refused))?;
    let armed = "Whether network namespaces that are not admitted may talk with nobody";
    families.gauges("armed", armed, one(figures.admitted.is_some().into()))?;
    let admitted = "Network namespaces that are admitted, beside the node's own";
    families.gauges("admitted_namespaces", admitted, figures.admitted.into_iter().flat_map(one))
}

fn splice(splice: Option<&Splice>, families: &mut Families) -> fmt::Result {
    let Some(splice) = splice else { return Ok(()) };
    let one = |value: u64| std::iter::once((Labels::new(), value));
    families.gauges("splice_paused", "Whether new connections are not spliced", one(splice.paused.into()))?;
    families.gauges(
        "spliced_connections",
        "Connections whose sockets write into each other",
        one(splice.connections),
    )?;
    families.counters("spliced_messages", "Messages that went from queue to queue", one(splice.messages))?;
    families.counters("spliced_bytes", "Bytes that went from queue to queue", one(splice.bytes))?;
    let reasons = splice.reasons.iter().map(|c| (vec![("reason", c.reason.as_str().into())], c.count));
    families.counters("splice_decisions", "What became of connections to opted-in ports, by reason code", reasons)
}

fn node(metrics: &Metrics, families: &mut Families) -> fmt::Result {
    let (status, one) = (&metrics.status, |value: u64| std::iter::once((Labels::new(), value)));
    let fill = |what: fn(&sidestep_agent_api::Fill) -> u32| {
        let by_others = metrics.captures.tables.iter().filter(|fill| !status.tables.contains(fill));
        let all = status.tables.iter().chain(by_others);
        all.map(move |fill| (vec![("map", fill.table.as_str().into())], u64::from(what(fill))))
            .collect::<Vec<_>>()
            .into_iter()
    };
    families.gauges("map_entries", "Entries of a table of the kernel that are in use", fill(|f| f.used))?;
    families.gauges("map_capacity", "Entries that the table has room for", fill(|f| f.size))?;
    let reasons = status.reasons.iter().map(|c| (vec![("reason", c.reason.as_str().into())], c.count));
    families.counters("events", "What has happened in the kernel, by reason code", reasons)?;
    let reconcile = &status.reconcile;
    families.counters("reconciles", "Times that the tables were written", one(reconcile.runs))?;
    families.counters("reconcile_failures", "Times that they could not be", one(reconcile.failures))?;
    let took =
        (reconcile.runs > 0).then(|| (Labels::new(), flows::places(&reconcile.durations), seconds(reconcile.total_us)));
    families.histograms("reconcile_duration_seconds", "How long writing the tables took", took.into_iter())?;
    let moved = "Connected UDP sockets that were connected to another backend because theirs had gone";
    families.counters("udp_sockets_moved", moved, one(reconcile.moved_sockets))?;
    let reclaimed = "Connected UDP sockets that were ended because their backend had gone and there was no other";
    families.counters("udp_sockets_reclaimed", reclaimed, one(reconcile.reclaimed_sockets))?;
    families.gauges("services", "Services that are known", one(metrics.services as u64))?;
    let troubles = "Files, objects or servers that cannot be read; what they held before stands";
    families.gauges("source_troubles", troubles, one(status.source.troubles.len() as u64))?;
    let problems = one(metrics.service_problems as u64);
    families.gauges("service_problems", "Parts of Services that could not be programmed", problems)?;
    families.gauges("attached", "Whether connections are balanced", one(status.attached.into()))
}

fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

type Labels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// Metrics of one name: a value for each set of labels.
struct Families<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Families<'_, '_> {
    fn counters<'l>(&mut self, name: &str, help: &str, values: impl Iterator<Item = (Labels<'l>, u64)>) -> fmt::Result {
        self.encode(name, help, values.map(|(labels, value)| (labels, ConstCounter::new(value))))
    }

    fn gauges<'l>(&mut self, name: &str, help: &str, values: impl Iterator<Item = (Labels<'l>, u64)>) -> fmt::Result {
        self.encode(name, help, values.map(|(labels, value)| (labels, ConstGauge::new(value as i64))))
    }

    fn float_counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<'l>, f64)>,
    ) -> fmt::Result {
        self.encode(name, help, values.map(|(labels, value)| (labels, ConstCounter::new(value))))
    }

    fn float_gauges<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<'l>, f64)>,
    ) -> fmt::Result {
        self.encode(name, help, values.map(|(labels, value)| (labels, ConstGauge::new(value))))
    }

    /// A histogram for each set of labels: {upper bound, count} of each bucket, and the sum.
    fn histograms<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<'l>, Vec<(f64, u64)>, f64)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        values.try_for_each(|(labels, places, sum)| {
            let count = places.iter().map(|(_, count)| count).sum();
            match labels.is_empty() {
                true => family.encode_histogram::<Labels>(sum, count, &places, None),
                false => family.encode_family(&labels)?.encode_histogram::<Labels>(sum, count, &places, None),
            }
        })
    }

    fn encode<'l, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<'l>, M)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        let Some((labels, first)) = values.peek() else { return Ok(()) };
        let is_alone = labels.is_empty();
        let mut family = self.0.encode_descriptor(name, help, None, first.metric_type())?;
        if is_alone {
            return values.next().map_or(Ok(()), |(_, value)| value.encode(family));
        }
        values.try_for_each(|(labels, value)| value.encode(family.encode_family(&labels)?))
    }
}
