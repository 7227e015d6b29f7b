//! Counts, in the text format of OpenMetrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use sidestep_injection::Outcome;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
    reason: &'static str,
}

/// All counts. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    containers: Family<Labels, Counter>,
    connected: Gauge,
    connections: Counter,
    requests: Histogram,
    lost: Counter,
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let (containers, connected, connections) = (Family::default(), Gauge::default(), Counter::default());
        let lost = Counter::default();
        // The runtime waits 2 s.
        let requests = Histogram::new([0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0]);
        let mut registry = Registry::with_prefix("sidestep_nri");
        registry.register("containers", "Containers of enrolled pods, by what became of them", containers.clone());
        registry.register("connected", "Whether the runtime has accepted the plugin", connected.clone());
        registry.register("connections", "Connections to the runtime that it has accepted", connections.clone());
        let help = "Time in which the runtime's requests were answered";
        registry.register_with_unit("request", help, Unit::Seconds, requests.clone());
        registry.register("lines_lost", "Lines of the log that could not be written in time", lost.clone());
        registry.register("build", "The running version", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        Metrics { containers, connected, connections, requests, lost, registry: Arc::new(registry) }
    }
}

impl Metrics {
    /// One more container.
    pub fn count(&self, outcome: Outcome) {
        let reason = outcome.reason().map_or("", |reason| reason.name());
        self.containers.get_or_create(&Labels { outcome: outcome.name(), reason }).inc();
    }

    /// The runtime has accepted the plugin, or the connection has ended.
    pub fn set_connected(&self, connected: bool) {
        self.connected.set(connected.into());
        if connected {
            self.connections.inc();
        }
    }

    /// Whether the runtime calls the plugin.
    pub fn is_connected(&self) -> bool {
        self.connected.get() != 0
    }

    /// A request was answered.
    pub fn answered(&self, time: Duration) {
        self.requests.observe(time.as_secs_f64());
    }

    /// A line of the log is lost.
    pub fn lost(&self) {
        self.lost.inc();
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a String cannot fail");
        text
    }
}
