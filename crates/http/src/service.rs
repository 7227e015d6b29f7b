//! One connection: a request and its answer.

use crate::answer::{Answer, Page};
use crate::asked::Asked;
use crate::limits::Limits;
use crate::turn::{Held, Turns};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use sidestep_error::chain;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use tokio::net::TcpStream;

/// Answers one request.
pub struct Service<F> {
    pub answers: F,
    /// For metrics.
    pub turns: Turns,
    pub asked: Asked,
    /// Until the answer has been read, or the connection ends.
    pub held: Mutex<Held>,
}

pub async fn serve<F: AsyncFn(Page) -> Answer>(stream: TcpStream, service: Service<F>, limits: Limits) {
    let answer = service_fn(|request| service.answer(request));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.until_asked).max_buf_size(limits.head).keep_alive(false);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!("a request for metrics came to nothing: {}", chain(&error));
    }
}

impl<F: AsyncFn(Page) -> Answer> Service<F> {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        self.asked.note();
        Ok(match (request.method(), Page::at(request.uri().path())) {
            (_, None) => response(Answer::new(StatusCode::NOT_FOUND, "here are /metrics, /healthz and /readyz\n")),
            (&Method::GET | &Method::HEAD, Some(page)) => {
                // Probes wait for no turn: slow readers of metrics must not make a pod unhealthy.
                if page == Page::Metrics {
                    let Some(ticket) = self.turns.queue() else {
                        return Ok(response(Answer::unavailable("too many ask for metrics at a time\n")));
                    };
                    self.asked.note_metrics();
                    let held = self.turns.come(ticket).await;
                    *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
                }
                response((self.answers)(page).await)
            }
            _ => {
                let mut refused = response(Answer::new(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"));
                refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                refused
            }
        })
    }
}

fn response(Answer { status, kind, text }: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
