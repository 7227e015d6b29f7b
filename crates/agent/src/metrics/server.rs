//! Serves metrics and probes over HTTP, one request for each connection. Anybody may reach the port, so everything has a limit: open
//! connections, the size of a request, the time for sending it, and the time for reading the answer.

use super::{probes, text};
use crate::heard::Heard;
use crate::message::QueryHandle;
use crate::signals::IsLoading;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use sidestep_agent_api::{Answer, Question, Refusal};
use sidestep_error::chain;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// The content type of OpenMetrics, which Prometheus accepts, too.
const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Answers in memory at a time: with 10,000 Services each has some megabytes.
const ANSWERS: usize = 4;
/// Pause after accept(2) has failed, perhaps for lack of descriptors.
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
struct Limits {
    /// Connections at a time. A new one replaces the oldest that has not sent its request yet.
    open: usize,
    /// Bytes of a request's head; 8 KiB at least.
    head: usize,
    /// Time from the connection to the end of the request's head.
    until_asked: Duration,
    /// Time from the connection to its end.
    until_answered: Duration,
}

/// Prometheus gives up after ten seconds by default.
const LIMITS: Limits =
    Limits { open: 64, head: 16 * 1024, until_asked: Duration::from_secs(5), until_answered: Duration::from_secs(10) };

pub struct Server {
    listener: TcpListener,
    limits: Limits,
}

impl Server {
    pub fn bind(address: SocketAddr) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Server { listener, limits: LIMITS })
    }

    /// Serves until the process ends.
    pub fn run(self, agent: Agent) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let mut connections = Connections::new(agent, self.limits);
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => connections.accept(stream),
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        })
    }
}

/// What is served of.
#[derive(Clone)]
pub struct Agent {
    pub queries: QueryHandle,
    pub is_loading: IsLoading,
    pub heard: Heard,
}

struct Connections {
    agent: Agent,
    limits: Limits,
    answers: Arc<Semaphore>,
    /// Ordered by age, the oldest first.
    open: Vec<Connection>,
}

struct Connection {
    task: AbortHandle,
    has_asked: Arc<AtomicBool>,
}

impl Connections {
    fn new(agent: Agent, limits: Limits) -> Connections {
        Connections { agent, limits, answers: Arc::new(Semaphore::new(ANSWERS)), open: Vec::new() }
    }

    fn accept(&mut self, stream: TcpStream) {
        self.open.retain(|connection| !connection.task.is_finished());
        if self.open.len() >= self.limits.open {
            let idle = self.open.iter().position(|connection| !connection.has_asked.load(Ordering::Relaxed));
            // All have sent their requests: the new connection is closed.
            let Some(idle) = idle else { return };
            self.open.remove(idle).task.abort();
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        let Connections { agent, limits, answers, .. } = self;
        let service = Service {
            agent: agent.clone(),
            answers: Arc::clone(answers),
            has_asked: Arc::clone(&has_asked),
            permit: Mutex::default(),
        };
        let serving = tokio::time::timeout(limits.until_answered, serve(stream, service, *limits));
        self.open.push(Connection { task: tokio::spawn(serving).abort_handle(), has_asked });
    }
}

/// Answers one request.
struct Service {
    agent: Agent,
    answers: Arc<Semaphore>,
    has_asked: Arc<AtomicBool>,
    /// Held until the answer has been read, or the connection ends.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

async fn serve(stream: TcpStream, service: Service, limits: Limits) {
    let answer = service_fn(|request| service.answer(request));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.until_asked).max_buf_size(limits.head).keep_alive(false);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!("a request for metrics came to nothing: {}", chain(&error));
    }
}

impl Service {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        self.has_asked.store(true, Ordering::Relaxed);
        let path = request.uri().path();
        Ok(match *request.method() {
            _ if !PATHS.contains(&path) => said(StatusCode::NOT_FOUND, "here are /metrics, /healthz and /readyz\n"),
            Method::GET | Method::HEAD => self.answer_at(path).await,
            _ => {
                let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
                refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                refused
            }
        })
    }

    /// Probes take no permit: slow readers of metrics must not make a pod unhealthy.
    async fn answer_at(&self, path: &str) -> Response<Full<Bytes>> {
        let Agent { queries, is_loading, .. } = &self.agent;
        let (status, text) = match path {
            "/healthz" => probes::alive(queries, is_loading).await,
            "/readyz" => probes::ready(queries).await,
            _ => {
                let permit = Arc::clone(&self.answers).acquire_owned().await.ok();
                *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
                return metrics(self.agent.clone()).await;
            }
        };
        said(status, text)
    }
}

const PATHS: [&str; 3] = ["/metrics", "/healthz", "/readyz"];

async fn metrics(Agent { queries, heard, .. }: Agent) -> Response<Full<Bytes>> {
    let asked = tokio::task::spawn_blocking(move || match queries.ask(Question::Metrics) {
        Ok(Answer::Metrics(metrics)) => Ok(text(*metrics, &heard)),
        Ok(_) => Err(Refusal("the agent answers something else".into())),
        Err(why) => Err(why),
    });
    match asked.await {
        Ok(Ok(text)) => {
            let mut found = said(StatusCode::OK, text);
            found.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
            found
        }
        Ok(Err(Refusal(why))) => said(StatusCode::SERVICE_UNAVAILABLE, why),
        Err(_) => said(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be put together\n"),
    }
}

fn said(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;
    use crate::message::Message;
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    const WHOLE: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    const PATIENCE: Duration = Duration::from_secs(20);

    /// The address of a server whose agent answers every question with an error of so many bytes.
    fn server(limits: Limits, bytes: usize) -> SocketAddr {
        let server = Server { limits, ..Server::bind(([127, 0, 0, 1], 0).into()).unwrap() };
        let address = server.listener.local_addr().unwrap();
        let (inbox, asked) = channel();
        let (queries, is_loading, heard) = (QueryHandle::new(inbox), IsLoading::default(), Heard::new());
        std::thread::spawn(move || server.run(Agent { queries, is_loading, heard }));
        std::thread::spawn(move || {
            for message in asked {
                match message {
                    Message::Asked(_, reply) => reply.send(Err(Refusal("x".repeat(bytes)))).unwrap(),
                    Message::Probed(reply) => {
                        let readiness = [("a", true), ("b", true), ("c", false), ("d", true)];
                        let _ = reply.send(Health { captures_silent: Duration::ZERO, readiness });
                    }
                    _ => {}
                }
            }
        });
        address
    }

    fn send(to: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    /// Everything received until the end of the connection or its reset.
    fn read(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        match stream.read_to_end(&mut text) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is not closed"),
        }
        String::from_utf8(text).unwrap()
    }

    fn status(text: &str) -> &str {
        text.split(' ').nth(1).unwrap_or("closed")
    }

    #[test]
    fn each_request_has_its_answer() {
        let at = server(LIMITS, 5);
        for (request, expected) in [
            (WHOLE, "503"),
            ("GET /metrics HTTP/1.0\r\n\r\n", "503"),
            ("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "503"),
            ("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "405"),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
            ("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
            ("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", "503"),
            ("nonsense\r\n\r\n", "400"),
        ] {
            assert_eq!(status(&read(send(at, request))), expected, "{request}");
        }
        assert!(read(send(at, WHOLE)).ends_with("xxxxx"));
        let ready = read(send(at, "GET /readyz HTTP/1.0\r\n\r\n"));
        assert!(ready.ends_with("[+] a\n[+] b\n[-] c\n[+] d\n"), "{ready}");
    }

    #[test]
    fn slow_readers_of_metrics_do_not_keep_probes_waiting() {
        let at = server(LIMITS, 64 << 20);
        // More bytes than sockets buffer, which nobody reads: they hold all permits.
        let _slow: Vec<_> = (0..2 * ANSWERS).map(|_| send(at, WHOLE)).collect();
        let begun = Instant::now();
        assert_eq!(status(&read(send(at, "GET /healthz HTTP/1.0\r\n\r\n"))), "200");
        assert!(begun.elapsed() < LIMITS.until_answered / 2);
    }

    #[test]
    fn a_main_thread_that_hangs_is_neither_alive_nor_ready() {
        let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let at = server.listener.local_addr().unwrap();
        let (inbox, _never_read) = channel();
        let (queries, is_loading, heard) = (QueryHandle::new(inbox), IsLoading::default(), Heard::new());
        let agent = Agent { queries, is_loading: is_loading.clone(), heard };
        std::thread::spawn(move || server.run(agent));
        let both = ["/healthz", "/readyz"].map(|path| send(at, &format!("GET {path} HTTP/1.0\r\n\r\n")));
        let [alive, ready] = both.map(read);
        assert_eq!((status(&alive), status(&ready)), ("503", "503"), "{alive}\n{ready}");
        assert!(alive.contains("the main thread has not answered within 5 s"), "{alive}");
        // While it loads programs, nothing is wrong.
        is_loading.store(true, Ordering::SeqCst);
        assert_eq!(status(&read(send(at, "GET /healthz HTTP/1.0\r\n\r\n"))), "200");
    }

    #[test]
    fn half_sent_requests_make_room_for_whole_ones() {
        let at = server(Limits { open: 8, ..LIMITS }, 5);
        let half: Vec<_> = (0..200).map(|_| send(at, "GET /metrics HTTP/1.1\r\nHost: a\r\nX-")).collect();
        assert_eq!(status(&read(send(at, WHOLE))), "503");
        let begun = Instant::now();
        let closed = half.into_iter().take(192).map(read).filter(String::is_empty).count();
        assert_eq!(closed, 192);
        assert!(begun.elapsed() < LIMITS.until_asked, "they are closed at once, not after their time");
    }

    #[test]
    fn a_request_has_to_come_soon_and_its_answer_has_to_be_read_soon() {
        let soon =
            Limits { until_asked: Duration::from_millis(200), until_answered: Duration::from_millis(900), ..LIMITS };
        let at = server(soon, 64 << 20);
        assert_eq!(status(&read(send(at, "GET /metrics HTT"))), "closed");
        // More bytes than sockets buffer, which nobody reads, and more connections than answers at a time.
        let slow: Vec<_> = (0..2 * ANSWERS).map(|_| send(at, WHOLE)).collect();
        std::thread::sleep(soon.until_answered);
        // Their permits are free again.
        let deadline = Instant::now() + PATIENCE;
        while status(&read(send(at, WHOLE))) != "503" {
            assert!(Instant::now() < deadline, "nobody is answered any more");
        }
        for stream in slow {
            assert!(read(stream).len() < 64 << 20);
        }
    }

    #[test]
    fn a_long_head_is_refused() {
        let at = server(LIMITS, 5);
        let head = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(2 * LIMITS.head));
        assert_eq!(status(&read(send(at, &head))), "431");
    }
}
