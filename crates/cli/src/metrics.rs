//! `sidestep status --metrics`: what the broker knows, in the text format of Prometheus.

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use sidestep_broker::status::{Carrier, Directions, Reasons, Stack, Status, Totals};

/// Values by one label. A metric without a label has one value, whose label is `NONE`.
type Values<'a> = Vec<(&'a str, u64)>;
type Labels = Vec<(&'static str, String)>;

struct Metrics(Registry);

pub fn text(status: &Status) -> String {
    let mut metrics = Metrics(Registry::with_prefix("sidestep"));
    metrics.broker(status);
    metrics.totals(&status.totals);
    metrics.pods(status);
    metrics.stack(&status.stack);
    let mut text = String::new();
    encode(&mut text, &metrics.0).expect("writing to a String cannot fail");
    text
}

impl Metrics {
    fn broker(&mut self, status: &Status) {
        // Lists are cut: what they have is no measure.
        let (version, counts) = (env!("CARGO_PKG_VERSION"), status.counted());
        self.gauge("build_info", "The version of this program", "version", vec![(version, 1)]);
        self.gauge("processes", "Processes that have joined", NONE, one(counts.processes));
        self.gauge("links", "Pairs of processes that share memory", NONE, one(counts.links));
        self.gauge("link_memory_bytes", "Memory of links that is in use", NONE, one(counts.link_memory_bytes));
        let Directions { kernel, ring, stack } = counts.directions;
        let ways = vec![(Carrier::Kernel.name(), kernel), (Carrier::Ring.name(), ring), (Carrier::Stack.name(), stack)];
        self.gauge("directions", "Directions of connections that have a slot", "carrier", ways);
        let waiting = "Connections on the kernel that wait for their other end";
        self.gauge("waiting_connections", waiting, NONE, one(status.waiting_offers));
        self.gauge("held", "Whether everything is detached", NONE, one(status.hold.into()));
        let reasons = by_reason(&status.reasons);
        self.counter("reasons", "Why connections stayed on the kernel, or went back to it", "reason", reasons);
        let refused = by_reason(&status.refused);
        self.counter("refused", "What the broker has refused", "reason", refused);
    }

    /// A program's bytes by the stack go by ring to it.
    fn totals(&mut self, totals: &Totals) {
        self.counter("connections", "TCP connections that programs have made", NONE, one(totals.seen));
        let upgraded = "Connections of which a direction went by ring";
        self.counter("connections_upgraded", upgraded, NONE, one(totals.upgraded));
        let returned = "Connections that came back to the kernel before their end";
        self.counter("connections_returned", returned, NONE, one(totals.returned));
        let Totals { ring_rx, kernel_rx, ring_tx, kernel_tx, .. } = *totals;
        let received = vec![(Carrier::Ring.name(), ring_rx), (Carrier::Kernel.name(), kernel_rx)];
        self.counter("received_bytes", "Bytes that programs have received", "carrier", received);
        let sent = vec![(Carrier::Ring.name(), ring_tx), (Carrier::Kernel.name(), kernel_tx)];
        self.counter("sent_bytes", "Bytes that programs have sent", "carrier", sent);
    }

    /// A pod is told of by its UID, which is all that the broker knows of it.
    fn pods(&mut self, status: &Status) {
        let seen = by_pod(status, |pod| pod.seen);
        self.counter("pod_connections", "TCP connections that programs of the pod have made", POD, seen);
        let upgraded = by_pod(status, |pod| pod.upgraded);
        self.counter("pod_connections_upgraded", "Those of which a direction went by ring", POD, upgraded);
        let returned = by_pod(status, |pod| pod.returned);
        self.counter("pod_connections_returned", "Those that came back to the kernel before their end", POD, returned);
        let received = "Bytes that programs of the pod have received";
        self.pod_bytes("pod_received_bytes", received, status, |pod| [pod.ring_rx, pod.kernel_rx]);
        let sent = "Bytes that programs of the pod have sent";
        self.pod_bytes("pod_sent_bytes", sent, status, |pod| [pod.ring_tx, pod.kernel_tx]);
    }

    /// `of`: by ring, and by kernel.
    fn pod_bytes(&mut self, name: &str, help: &str, status: &Status, of: fn(&Totals) -> [u64; 2]) {
        let family = Family::<Labels, Counter>::default();
        for (uid, totals) in pods(status) {
            for (carrier, bytes) in [Carrier::Ring, Carrier::Kernel].into_iter().zip(of(totals)) {
                let labels = vec![(POD, uid.to_owned()), ("carrier", carrier.name().to_owned())];
                family.get_or_create(&labels).inc_by(bytes);
            }
        }
        self.0.register(name, help, family);
    }

    fn stack(&mut self, stack: &Stack) {
        let Stack { pid, carries, totals, reasons } = stack;
        self.gauge("stack_up", "Whether there is a stack", NONE, one(pid.is_some().into()));
        self.gauge("stack_connections", "Connections that the stack carries", NONE, one(*carries));
        self.counter("stack_taken", "Times that the stack has taken a connection", NONE, one(totals.upgraded));
        self.counter("stack_given_back", "Times that it has given one back", NONE, one(totals.returned));
        let bytes = vec![("from-programs", totals.ring_rx), ("to-programs", totals.ring_tx)];
        self.counter("stack_bytes", "Bytes that the stack has carried", "direction", bytes);
        let reasons = by_reason(reasons);
        self.counter(
            "stack_reasons",
            "Why the stack has not taken connections, or has given them back",
            "reason",
            reasons,
        );
    }

    fn gauge(&mut self, name: &str, help: &str, label: &'static str, values: Values) {
        self.family(name, help, label, values, |gauge: &Gauge, value| {
            gauge.set(value as i64);
        });
    }

    fn counter(&mut self, name: &str, help: &str, label: &'static str, values: Values) {
        self.family(name, help, label, values, |counter: &Counter, value| {
            counter.inc_by(value);
        });
    }

    fn family<M>(&mut self, name: &str, help: &str, label: &'static str, values: Values, set: impl Fn(&M, u64))
    where
        M: Default + Clone + Metric + EncodeMetric + TypedMetric,
    {
        if let [(NONE, value)] = values[..] {
            let metric = M::default();
            set(&metric, value);
            return self.0.register(name, help, metric);
        }
        let family = Family::<Labels, M>::default();
        for (value, number) in values {
            set(&family.get_or_create(&vec![(label, value.to_owned())]), number);
        }
        self.0.register(name, help, family);
    }
}

const NONE: &str = "";
/// The label of a pod's counts, and its value for all pods that the broker does not name.
const POD: &str = "pod_uid";
const OTHER: &str = "other";

fn pods(status: &Status) -> impl Iterator<Item = (&str, &Totals)> {
    status.pods.iter().map(|(uid, totals)| (uid.as_str(), totals)).chain([(OTHER, &status.other_pods)])
}

fn by_pod(status: &Status, of: fn(&Totals) -> u64) -> Values<'_> {
    pods(status).map(|(uid, totals)| (uid, of(totals))).collect()
}

fn one<'a>(value: u64) -> Values<'a> {
    vec![(NONE, value)]
}

fn by_reason(reasons: &Reasons) -> Values<'_> {
    reasons.iter().map(|(name, count)| (name.as_str(), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_broker::status::{Connection, Counts, Direction, Link, Process};

    const UID: &str = "1f0b8a52-0001-4e5f-9a8b-0123456789c3";

    #[test]
    fn carriers_reasons_and_the_stack_are_told() {
        let directions = Directions { kernel: 1, ring: 0, stack: 1 };
        let status = Status {
            counts: Some(Counts { processes: 5000, connections: 1, directions, ..Counts::default() }),
            processes: vec![Process::default()],
            totals: Totals { seen: 5, ring_rx: 70, ..Totals::default() },
            pods: [(UID.to_owned(), Totals { seen: 2, ring_rx: 60, ..Totals::default() })].into(),
            other_pods: Totals { seen: 1, kernel_tx: 9, ..Totals::default() },
            reasons: [("loss".to_owned(), 3)].into(),
            stack: Stack { pid: Some(1), carries: 1, ..Stack::default() },
            ..Status::default()
        };
        let text = text(&status);
        for line in [
            "sidestep_processes 5000",
            "sidestep_directions{carrier=\"stack\"} 1",
            "sidestep_directions{carrier=\"ring\"} 0",
            "sidestep_connections_total 5",
            "sidestep_received_bytes_total{carrier=\"ring\"} 70",
            "sidestep_pod_connections_total{pod_uid=\"1f0b8a52-0001-4e5f-9a8b-0123456789c3\"} 2",
            "sidestep_pod_connections_total{pod_uid=\"other\"} 1",
            "sidestep_pod_received_bytes_total{pod_uid=\"1f0b8a52-0001-4e5f-9a8b-0123456789c3\",carrier=\"ring\"} 60",
            "sidestep_pod_sent_bytes_total{pod_uid=\"other\",carrier=\"kernel\"} 9",
            "sidestep_reasons_total{reason=\"loss\"} 3",
            "sidestep_stack_up 1",
            "sidestep_stack_connections 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }

    /// A broker of the same protocol, from before the counts.
    #[test]
    fn a_broker_that_counts_nothing_lists_all() {
        let direction = |carrier| Direction { carrier, ..Direction::default() };
        let connection =
            Connection { directions: [direction(Carrier::Ring), direction(Carrier::Kernel)], ..Connection::default() };
        let status = Status {
            processes: vec![Process::default(); 3],
            links: vec![Link { memory_bytes: 4096, ..Link::default() }; 2],
            connections: vec![connection],
            ..Status::default()
        };
        let mut older = serde_json::to_value(&status).expect("JSON");
        older.as_object_mut().expect("an object").remove("counts");
        let text = text(&serde_json::from_value(older).expect("a status"));
        for line in [
            "sidestep_processes 3",
            "sidestep_links 2",
            "sidestep_link_memory_bytes 8192",
            "sidestep_directions{carrier=\"ring\"} 1",
            "sidestep_directions{carrier=\"kernel\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
