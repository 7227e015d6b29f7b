//! `sidestep status --metrics --serve`: the broker's metrics over HTTP. Whoever reaches the port may ask, so everything is bounded:
//! connections at a time, the size of a request, and the time of an exchange.

use sidestep_broker::client::ClientError;
use sidestep_error::chain;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Connections at a time. Others are closed at once.
const MOST: usize = 16;
/// Bytes of a request, of which only the first line counts.
const LARGEST: usize = 4096;
/// Time for a request, and for reading its answer.
const LONGEST: Duration = Duration::from_secs(5);
/// Pause after a connection could not be accepted for a reason that may last: no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

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
    let listener = TcpListener::bind(address).map_err(|source| ServeError { address, source })?;
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= MOST {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (metrics, open) = (metrics.clone(), open.clone());
        std::thread::spawn(move || {
            // A client that goes away, or says nothing, gets no answer.
            let _ = exchange(stream, &*metrics);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn exchange(mut stream: TcpStream, metrics: &Metrics) -> io::Result<()> {
    let request = request(&mut stream, Instant::now() + LONGEST)?;
    let (status, kind, body) = answer(&request, metrics);
    stream.set_write_timeout(Some(LONGEST))?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Everything up to the empty line.
fn request(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || bytes.len() >= LARGEST {
            return Err(ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut part = [0; 1024];
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Status, content type and body.
fn answer(request: &str, metrics: &Metrics) -> (&'static str, &'static str, String) {
    const TEXT: &str = "text/plain; charset=utf-8";
    let mut words = request.lines().next().unwrap_or_default().split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => match metrics() {
            Ok(text) => ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
            Err(error) => ("503 Service Unavailable", TEXT, format!("{}\n", chain(&error))),
        },
        (Some("GET"), Some("/healthz")) => ("200 OK", TEXT, "ok\n".into()),
        (Some("GET"), _) => ("404 Not Found", TEXT, "only /metrics and /healthz are here\n".into()),
        _ => ("405 Method Not Allowed", TEXT, "only GET\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> &'static str {
        answer(request, &|| Ok("sidestep_links 0\n".into())).0
    }

    #[test]
    fn only_what_is_there_is_answered() {
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), "200 OK");
        assert_eq!(status("GET /healthz HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status("GET /../etc/passwd HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        assert_eq!(status("\r\n\r\n"), "405 Method Not Allowed");
    }

    #[test]
    fn without_a_broker_it_says_so() {
        let (status, _, body) = answer("GET /metrics HTTP/1.1", &|| Err(ClientError::NotAllowed(5)));
        assert_eq!(status, "503 Service Unavailable");
        assert!(body.contains("only root and user 5"), "{body}");
    }
}
