//! Counts, in the text format of OpenMetrics, and health over HTTP.

use crate::nodes::Nodes;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use sidestep_http::{Answer, Page, Server};
use sidestep_injection::{Outcome, Outcomes};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// All counts. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    containers: Outcomes,
    refused: Counter,
    requests: Histogram,
    nodes: Gauge,
    with_library: Gauge,
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let (refused, nodes, with_library) = (Counter::default(), Gauge::default(), Gauge::default());
        // The API server waits 3 s.
        let requests = Histogram::new([0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0]);
        let mut registry = Registry::with_prefix("sidestep_webhook");
        let containers = Outcomes::in_registry(&mut registry);
        registry.register("refused", "Requests that are none of an API server", refused.clone());
        let help = "Time in which requests of the API server were answered";
        registry.register_with_unit("request", help, Unit::Seconds, requests.clone());
        registry.register("nodes", "Nodes of the cluster", nodes.clone());
        registry.register("nodes_with_library", "Nodes that have the library", with_library.clone());
        registry.register("build", "The running version", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        Metrics { containers, refused, requests, nodes, with_library, registry: Arc::new(registry) }
    }
}

impl Metrics {
    /// One more container.
    pub fn count(&self, outcome: Outcome) {
        self.containers.count(outcome);
    }

    /// A request has an answer.
    pub fn answered(&self, time: Duration) {
        self.requests.observe(time.as_secs_f64());
    }

    /// A request has none.
    pub fn refused(&self) {
        self.refused.inc();
    }

    fn text(&self, nodes: &Nodes) -> String {
        for (gauge, count) in [&self.nodes, &self.with_library].into_iter().zip(nodes.counts()) {
            gauge.set(count.try_into().unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a String cannot fail");
        text
    }

    /// Serves metrics and health on a thread of its own until the process ends. The address where it listens.
    pub fn serve(&self, address: SocketAddr, nodes: Nodes) -> io::Result<SocketAddr> {
        let server = Server::bind(address)?;
        let address = server.address()?;
        let metrics = self.clone();
        let answer = move |page| {
            std::future::ready(match page {
                Page::Metrics => Answer::metrics(metrics.text(&nodes)),
                Page::Ready if !nodes.are_known() => Answer::unavailable(
                    "the API server has not told the nodes, or the pods that install the library, yet\n",
                ),
                Page::Alive | Page::Ready => Answer::well("ok\n"),
            })
        };
        std::thread::Builder::new().name("metrics".into()).spawn(move || server.run(answer))?;
        Ok(address)
    }
}
