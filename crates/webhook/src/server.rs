//! One connection: TLS, a request and its answer. Anybody in the cluster may connect, so everything has a limit.

use crate::case::Case;
use crate::certificate::Certificate;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::places::Places;
use crate::review::review;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use sidestep_error::chain;
use sidestep_http::{Asked, Limits};
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// Most bytes of a request: the API server itself takes no more of an object.
const LARGEST: usize = 3 << 20;
/// The API server waits 3 s, by the chart.
pub const LIMITS: Limits =
    Limits { open: 32, head: 16 * 1024, until_asked: Duration::from_secs(3), until_answered: Duration::from_secs(5) };

/// Answers requests.
pub struct Server {
    pub certificate: Certificate,
    pub places: Places,
    pub nodes: Nodes,
    pub metrics: Metrics,
}

impl Server {
    /// Serves a connection.
    pub async fn serve(&self, stream: TcpStream, asked: Asked) {
        let stream = match TlsAcceptor::from(self.certificate.config()).accept(stream).await {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!("a connection came to nothing: {}", chain(&error)),
        };
        let answer = service_fn(|request| self.answer(request, &asked));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(LIMITS.until_asked)
            .max_buf_size(LIMITS.head)
            .keep_alive(false);
        if let Err(error) = http.serve_connection(TokioIo::new(stream), answer).await {
            tracing::debug!("a request came to nothing: {}", chain(&error));
        }
    }

    async fn answer(&self, request: Request<Incoming>, asked: &Asked) -> Result<Response<Full<Bytes>>, Infallible> {
        let Some(case) = Case::at(request.uri().path()) else {
            return Ok(plain(StatusCode::NOT_FOUND, "here are /pod, /namespace and those below /restricted\n".into()));
        };
        if request.method() != Method::POST {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "use POST\n".into());
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Ok(refused);
        }
        if request.body().size_hint().lower() > LARGEST as u64 {
            return Ok(self.refusal(StatusCode::PAYLOAD_TOO_LARGE, "a pod has no such size\n".into()));
        }
        let body = match Limited::new(request.into_body(), LARGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return Ok(self.refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("{error}\n"))),
        };
        asked.note();
        Ok(self.review(&body, case))
    }

    fn review(&self, body: &[u8], case: Case) -> Response<Full<Bytes>> {
        let begun = Instant::now();
        let reviewed = match review(body, case, &self.places, &self.nodes) {
            Ok(reviewed) => reviewed,
            Err(error) => return self.refusal(StatusCode::BAD_REQUEST, format!("{}\n", chain(&error))),
        };
        reviewed.outcomes.iter().for_each(|outcome| self.metrics.count(*outcome));
        if let Some(told) = reviewed.told {
            tracing::info!("left out: {told}");
        }
        let mut response = plain(StatusCode::OK, reviewed.answer.to_string());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.metrics.answered(begun.elapsed());
        response
    }

    fn refusal(&self, status: StatusCode, text: String) -> Response<Full<Bytes>> {
        self.metrics.refused();
        tracing::debug!("a request is refused: {}", text.trim());
        plain(status, text)
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
