//! Answers at the healthCheckNodePorts of Services, as kube-proxy does: a load balancer outside of the cluster sends connections only
//! to nodes that have endpoints. Anybody may ask, so everything has a limit.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use serde_json::json;
use sidestep_error::chain;
use sidestep_http::{Asked, Connections};
use sidestep_mesh::address::Family;
use sidestep_mesh::object::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Connections at a time, at all ports together.
const OPEN: usize = 256;
/// At one port.
const OPEN_AT_PORT: usize = 32;
/// From the connection to its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a port could not be bound, or accept(2) has failed.
const AGAIN: Duration = Duration::from_secs(5);
/// In newer Kubernetes: how many endpoints the node has, for load balancers that weigh nodes.
const WEIGHT: &str = "x-load-balancing-endpoint-weight";

/// The connections at each port.
type Open = BTreeMap<u16, Connections>;
/// What is answered, by port.
type Answers = BTreeMap<u16, Answer>;

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub service: Name,
    /// Ready ones on this node, as [`Family::BOTH`].
    pub endpoints: [usize; 2],
}

/// The thread that answers. Without changes it goes on with what it knows.
pub struct HealthChecks {
    answers: watch::Sender<Answers>,
    known: BTreeMap<Name, (u16, [usize; 2])>,
}

impl HealthChecks {
    /// `networks`: only at the node's addresses in these; empty: at all.
    pub fn start(networks: Vec<IpNet>) -> HealthChecks {
        let (answers, received) = watch::channel(Answers::new());
        let work = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(serve(received, networks.into())),
            Err(error) => tracing::error!("health checks of Services are not answered: {}", chain(&error)),
        };
        std::thread::Builder::new().name("health-checks".into()).spawn(work).expect("cannot start a thread");
        HealthChecks { answers, known: BTreeMap::new() }
    }

    /// None: nobody asks for this Service.
    pub fn set(&mut self, service: &Name, check: Option<(u16, [usize; 2])>) {
        match check {
            Some(check) => self.known.insert(service.clone(), check),
            None => self.known.remove(service),
        };
    }

    /// Call after changes.
    pub fn publish(&self) {
        let mut answers = Answers::new();
        for (service, (port, endpoints)) in &self.known {
            // The API server gives each port once. In files, the first Service has it.
            answers.entry(*port).or_insert_with(|| Answer { service: service.clone(), endpoints: *endpoints });
        }
        self.answers.send_if_modified(|before| {
            let is_new = *before != answers;
            *before = answers;
            is_new
        });
    }
}

/// Until the sender has gone.
async fn serve(mut answers: watch::Receiver<Answers>, networks: Arc<[IpNet]>) {
    let open = Arc::<Mutex<Open>>::default();
    let mut listening: BTreeMap<u16, AbortHandle> = BTreeMap::new();
    loop {
        let wanted: BTreeSet<u16> = answers.borrow_and_update().keys().copied().collect();
        listening.retain(|port, task| {
            let stays = wanted.contains(port);
            if !stays {
                task.abort();
            }
            stays
        });
        let mut all = true;
        for port in wanted.into_iter().filter(|port| !listening.contains_key(port)).collect::<Vec<_>>() {
            match bind(port).await {
                Ok(listener) => {
                    let port = Port { port, answers: answers.clone(), networks: networks.clone(), open: open.clone() };
                    listening.insert(port.port, tokio::spawn(port.accept(listener)).abort_handle());
                }
                Err(error) => {
                    all = false;
                    let why = chain(&error);
                    tracing::warn!("healthCheckNodePort {port} is not answered: does a kube-proxy run here? {why}");
                }
            }
        }
        let changed =
            if all { Ok(answers.changed().await) } else { tokio::time::timeout(AGAIN, answers.changed()).await };
        if let Ok(Err(_gone)) = changed {
            return;
        }
    }
}

/// For both families, or for IPv4 where there is no other.
async fn bind(port: u16) -> io::Result<TcpListener> {
    match bind_both(port) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) => {
            TcpListener::bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)).await
        }
        bound => bound,
    }
}

/// A socket of both families, whatever net.ipv6.bindv6only says.
fn bind_both(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))?;
    socket.listen(BACKLOG)
}

#[derive(Clone)]
struct Port {
    port: u16,
    answers: watch::Receiver<Answers>,
    networks: Arc<[IpNet]>,
    open: Arc<Mutex<Open>>,
}

/// Makes room for a connection at this port. A new one replaces the oldest without a request: at its own port, or, if there are too
/// many at all ports together, at the port that has most, so that no Service's port silences another one's. False: it is closed.
fn make_room(open: &mut Open, port: u16) -> bool {
    open.retain(|_, its| its.count() > 0);
    let counts: Vec<(usize, u16)> = open.iter_mut().map(|(port, its)| (its.count(), *port)).collect();
    let is_full = counts.iter().any(|(count, at)| *at == port && *count >= OPEN_AT_PORT);
    let all: usize = counts.iter().map(|(count, _)| count).sum();
    let most = counts.iter().max().map(|(_, at)| *at);
    let from = if is_full { Some(port) } else { most.filter(|_| all >= OPEN) };
    from.and_then(|port| open.get_mut(&port)).is_none_or(Connections::replace_one)
}

impl Port {
    async fn accept(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) if self.is_served(&stream) => self.begin(stream),
                Ok(_) => {}
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    fn begin(&self, stream: TcpStream) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !make_room(&mut open, self.port) {
            return;
        }
        let (port, asked) = (self.clone(), Asked::default());
        let its_own = asked.clone();
        let answering = async move { tokio::time::timeout(PATIENCE, port.answer(stream, its_own)).await };
        open.entry(self.port).or_default().add(tokio::spawn(answering).abort_handle(), asked);
    }

    fn is_served(&self, stream: &TcpStream) -> bool {
        let own = stream.local_addr().map(|address| address.ip().to_canonical());
        let is_in = |ip: &std::net::IpAddr| self.networks.iter().any(|network| network.contains(ip));
        self.networks.is_empty() || own.is_ok_and(|ip| is_in(&ip))
    }

    async fn answer(&self, stream: TcpStream, asked: Asked) {
        let Ok(own) = stream.local_addr() else { return };
        let family = Family::of(own.ip().to_canonical());
        let answer = service_fn(|_: Request<Incoming>| {
            asked.note();
            async { Ok::<_, Infallible>(self.said(family)) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(8192).keep_alive(false);
        if let Err(error) = http.serve_connection(TokioIo::new(stream), answer).await {
            tracing::debug!("a health check came to nothing: {}", chain(&error));
        }
    }

    /// The fields are kube-proxy's. The load balancer sends connections of the family by which it asks.
    fn said(&self, family: Family) -> Response<Full<Bytes>> {
        let answer = self.answers.borrow().get(&self.port).cloned();
        let Some(Answer { service, endpoints }) = answer else {
            let mut gone = Response::new(Full::default());
            *gone.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return gone;
        };
        let [v4, v6] = endpoints;
        let endpoints = if family == Family::V4 { v4 } else { v6 };
        let body = json!({
            "service": {"namespace": &*service.namespace, "name": &*service.name},
            "localEndpoints": endpoints,
            "serviceProxyHealthy": true,
        });
        let mut said = Response::new(Full::new(format!("{body:#}").into()));
        *said.status_mut() = if endpoints > 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        said.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        said.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        said.headers_mut().insert(WEIGHT, HeaderValue::from(endpoints));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream as Client;
    use std::time::Instant;

    const LONGEST: Duration = Duration::from_secs(20);

    /// Ports that nobody has at present.
    fn ports() -> [u16; 2] {
        let both = [(); 2].map(|()| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        both.map(|listener| listener.local_addr().unwrap().port())
    }

    /// As soon as the thread listens there.
    fn connect(port: u16) -> Client {
        let until = Instant::now() + LONGEST;
        loop {
            match Client::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < until, "port {port}: {error}"),
            }
            std::thread::yield_now();
        }
    }

    /// The status. Empty: the connection was closed.
    fn ask(port: u16) -> String {
        let mut stream = connect(port);
        stream.set_read_timeout(Some(LONGEST)).unwrap();
        // A connection that is closed already may refuse both.
        let _ = stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.split(' ').nth(1).unwrap_or_default().to_string()
    }

    #[test]
    fn silent_connections_silence_neither_their_port_nor_another() {
        let [one, other] = ports();
        let mut checks = HealthChecks::start(Vec::new());
        checks.set(&Name::new("a", "greedy"), Some((one, [1, 1])));
        checks.set(&Name::new("b", "modest"), Some((other, [1, 1])));
        checks.publish();
        drop((connect(one), connect(other)));
        let begun = Instant::now();
        let _silent: Vec<_> = (0..200).map(|_| connect(one)).collect();
        // All of them have been accepted before the first question.
        assert_eq!([one, other, one].map(ask), ["200", "200", "200"]);
        assert!(begun.elapsed() < PATIENCE, "they were waited for");
    }

    #[test]
    fn the_port_with_most_connections_makes_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let mut open = Open::new();
        let mut begin = |port| {
            assert!(make_room(&mut open, port), "port {port}");
            let task = tokio::spawn(std::future::pending::<()>());
            open.entry(port).or_default().add(task.abort_handle(), Asked::default());
            open.iter_mut().map(|(port, its)| (*port, its.count())).collect::<BTreeMap<_, _>>()
        };
        let ports = 1..=(OPEN / OPEN_AT_PORT) as u16;
        for port in ports {
            (0..=OPEN_AT_PORT).for_each(|_| drop(begin(port)));
        }
        let modest = 99;
        begin(modest);
        for port in 1..=8 {
            let counts = begin(port);
            assert_eq!(counts.values().sum::<usize>(), OPEN);
            assert_eq!(counts[&modest], 1, "{counts:?}");
        }
    }
}
