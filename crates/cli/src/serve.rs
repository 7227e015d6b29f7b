//! `sidestep status --metrics --serve`: the broker's metrics over HTTP.

use sidestep_broker::client::ClientError;
use sidestep_error::chain;
use sidestep_http::{Answer, Page, Server, apart};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[error("--serve {address}: cannot listen there")]
pub struct ServeError {
    address: SocketAddr,
    source: io::Error,
}

/// What answers.
type Metrics = dyn Fn() -> Result<String, ClientError> + Send + Sync;

/// Serves until the process ends.
pub fn serve(address: SocketAddr, metrics: Arc<Metrics>) -> Result<(), ServeError> {
    let server = Server::bind(address).map_err(|source| ServeError { address, source })?;
    let answer = move |page| {
        let metrics = metrics.clone();
        async move {
            match page {
                Page::Metrics => apart(move || answer(&*metrics)).await,
                // The broker has probes of its own.
                Page::Alive | Page::Ready => Answer::well("ok\n"),
            }
        }
    };
    server.run(answer).map_err(|source| ServeError { address, source })
}

fn answer(metrics: &Metrics) -> Answer {
    metrics().map_or_else(|error| Answer::unavailable(format!("{}\n", chain(&error))), Answer::metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_broker_it_says_so() {
        assert_eq!(answer(&|| Ok("sidestep_links 0\n".into())), Answer::metrics("sidestep_links 0\n".into()));
        let expected = Answer::unavailable(format!("{}\n", chain(&ClientError::NotAllowed(5))));
        assert_eq!(answer(&|| Err(ClientError::NotAllowed(5))), expected);
    }
}
