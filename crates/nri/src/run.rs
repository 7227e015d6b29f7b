//! The plugin as a process: connects to the runtime, and again whenever the runtime has gone.

use crate::injection::Injection;
use crate::inspector::Inspector;
use crate::metrics::Metrics;
use crate::namespaces::Namespaces;
use crate::plugin::Plugin;
use crate::present::Present;
use crate::report::Reporter;
use crate::server;
use crate::session::Session;
use sidestep_error::chain;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pause before the next attempt. A container that a restarted runtime creates before the plugin is there again has no library, so
/// the pause is short; an attempt in vain is one call.
const AGAIN: Duration = Duration::from_millis(200);

/// What the plugin is told.
pub struct Settings {
    /// The runtime's socket.
    pub socket: PathBuf,
    /// Two digits, in the order of which the runtime asks its plugins.
    pub index: String,
    /// Enrolled namespaces.
    pub namespaces: Namespaces,
    /// What containers get.
    pub injection: Injection,
    /// File of events.
    pub events: Option<PathBuf>,
    /// Where metrics and health are served.
    pub metrics: Option<SocketAddr>,
    /// A proc(5) of the host.
    pub proc: PathBuf,
}

/// Why the plugin cannot start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum RunError {
    #[error("{path}: cannot open the file of events", path = .path.display())]
    Events { path: PathBuf, source: io::Error },
    #[error("{address}: cannot serve metrics")]
    Metrics { address: SocketAddr, source: io::Error },
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Runs until a signal ends the process. The runtime goes on without the plugin then: containers that are created meanwhile have
/// no library.
pub fn run(settings: Settings) -> Result<Infallible, RunError> {
    let Settings { socket, index, namespaces, injection, events, metrics: address, proc } = settings;
    let metrics = Metrics::default();
    let reporter = Reporter::new(metrics.clone(), events.as_deref())
        .map_err(|source| RunError::Events { path: events.unwrap_or_default(), source })?;
    if let Some(address) = address {
        let at = server::start(address, metrics.clone()).map_err(|source| RunError::Metrics { address, source })?;
        reporter.note("metrics", &format!("Metrics are at http://{at}/metrics"));
    }
    let inspector = Inspector::start(proc, reporter.clone()).map_err(RunError::Thread)?;
    let mut plugin =
        Plugin { namespaces, injection, inspector, reporter: reporter.clone(), present: Present::default() };
    let mut last = String::new();
    loop {
        let why = session(&socket, &index, &mut plugin, &metrics);
        // Once for a runtime that is away, not with each attempt.
        if why != last {
            reporter.warning("disconnected", &why);
            last = why;
        }
        std::thread::sleep(AGAIN);
    }
}

/// One connection; why it has ended, or could not begin.
fn session(socket: &Path, index: &str, plugin: &mut Plugin, metrics: &Metrics) -> String {
    match UnixStream::connect(socket) {
        Ok(stream) => {
            let error = Session::begin(stream, index, plugin, metrics).map_or_else(|error| error, Session::serve);
            chain(&error).to_string()
        }
        Err(error) => format!("{}: cannot connect to the runtime: {error}", socket.display()),
    }
}
