//! The webhook as a process.

use crate::certificate::{Certificate, CertificateError};
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::places::Places;
use crate::server::{LIMITS, Server};
use crate::watch;
pub use crate::watch::Installers;
use sidestep_http::Server as Listener;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// What the webhook is told.
pub struct Settings {
    /// Where the API server reaches it.
    pub listen: SocketAddr,
    /// The directory with certificate and key.
    pub certificate: PathBuf,
    /// Where things are on nodes.
    pub places: Places,
    /// Which pods install the library; None: all nodes have it.
    pub installers: Option<Installers>,
    /// Where metrics and health are served.
    pub metrics: Option<SocketAddr>,
}

/// Why the webhook cannot start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum RunError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("{address}: cannot serve there")]
    Serve { address: SocketAddr, source: io::Error },
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Runs until a signal ends the process. Pods are admitted without it, as they are.
pub fn run(settings: Settings) -> Result<(), RunError> {
    let Settings { listen, certificate, places, installers, metrics: address } = settings;
    let certificate = Certificate::read(certificate)?;
    let (metrics, nodes) = (Metrics::default(), installers.as_ref().map_or_else(Nodes::assumed, |_| Nodes::unknown()));
    if let Some(installers) = installers {
        watch::start(installers, nodes.clone()).map_err(RunError::Thread)?;
    }
    if let Some(address) = address {
        let at = metrics.serve(address, nodes.clone()).map_err(|source| RunError::Serve { address, source })?;
        tracing::info!("metrics are at http://{at}/metrics");
    }
    let failed = |source| RunError::Serve { address: listen, source };
    let listener = Listener::bind(listen).map_err(failed)?.limited(LIMITS);
    tracing::info!("pods are reviewed at https://{}", listener.address().map_err(failed)?);
    let server = Rc::new(Server { certificate, places, nodes, metrics });
    listener.run_with(async move |stream, asked| server.serve(stream, asked).await).map_err(failed)
}
