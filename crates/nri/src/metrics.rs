//! Counts, in the text format of OpenMetrics.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use sidestep_injection::{Outcome, Outcomes};
use std::sync::Arc;
use std::time::Duration;

/// All counts. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    containers: Outcomes,
    connected: Gauge,
    connections: Counter,
    requests: Histogram,
    lost: Counter,
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let (connected, connections, lost) = (Gauge::default(), Counter::default(), Counter::default());
        // The runtime waits 2 s.
        let requests = Histogram::new([0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0]);
        let mut registry = Registry::with_prefix("sidestep_nri");
        let containers = Outcomes::in_registry(&mut registry);
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
        self.containers.count(outcome);
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
