//! Metrics and health over HTTP.

use crate::metrics::Metrics;
use sidestep_http::{Answer, Page, Server};
use std::io;
use std::net::SocketAddr;

/// Serves on a thread of its own until the process ends. The address where it listens.
pub fn start(address: SocketAddr, metrics: Metrics) -> io::Result<SocketAddr> {
    let server = Server::bind(address)?;
    let address = server.address()?;
    let answer = move |page| std::future::ready(answer(page, &metrics));
    std::thread::Builder::new().name("metrics".into()).spawn(move || server.run(answer))?;
    Ok(address)
}

fn answer(page: Page, metrics: &Metrics) -> Answer {
    match page {
        Page::Metrics => Answer::metrics(metrics.text()),
        Page::Ready if !metrics.is_connected() => Answer::unavailable("the runtime has not accepted the plugin\n"),
        Page::Alive | Page::Ready => Answer::well("ok\n"),
    }
}
