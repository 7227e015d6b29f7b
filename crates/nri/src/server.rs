//! Metrics and health over HTTP: `/metrics`, `/healthz`, `/readyz`. Anybody may reach the port, so connections, the size of a
//! request and its time are limited.

use crate::metrics::Metrics;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// The content type of OpenMetrics, which Prometheus accepts, too.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Connections at a time; others wait in the listener's queue.
const MOST: usize = 16;
/// Bytes of a request's head.
const LARGEST_HEAD: usize = 16 * 1024;
/// Time from the connection to its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after accept(2) has failed, perhaps for lack of descriptors.
const AGAIN: Duration = Duration::from_millis(100);

/// Serves on a thread of its own until the process ends. The address where it listens.
pub fn start(address: SocketAddr, metrics: Metrics) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("metrics".into()).spawn(move || runtime.block_on(serve(listener, metrics)))?;
    Ok(address)
}

async fn serve(listener: TcpListener, metrics: Metrics) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(MOST));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let metrics = metrics.clone();
                tokio::spawn(async move {
                    let _permit = permit;
                    // Whoever takes longer is not answered.
                    let _ = tokio::time::timeout(PATIENCE, answer_one(stream, metrics)).await;
                });
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

async fn answer_one(stream: TcpStream, metrics: Metrics) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &metrics);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(LARGEST_HEAD).keep_alive(false);
    // A request that comes to nothing concerns nobody else.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(method: &Method, path: &str, metrics: &Metrics) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return said(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
    }
    match path {
        "/metrics" => {
            let mut found = said(StatusCode::OK, metrics.text());
            found.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
            found
        }
        "/healthz" => said(StatusCode::OK, "ok\n"),
        "/readyz" if metrics.is_connected() => said(StatusCode::OK, "ok\n"),
        "/readyz" => said(StatusCode::SERVICE_UNAVAILABLE, "the runtime has not accepted the plugin\n"),
        _ => said(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
    }
}

fn said(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}
