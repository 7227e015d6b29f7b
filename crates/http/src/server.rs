//! Which connections are served.

use crate::answer::{Answer, Page};
use crate::limits::Limits;
use crate::service::{Service, serve};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, LocalSet, spawn_local};

/// Answers with metrics in memory at a time: with 10,000 Services each has some megabytes.
pub(crate) const ANSWERS: usize = 4;
/// Pause after accept(2) has failed, perhaps for lack of descriptors.
const AGAIN: Duration = Duration::from_millis(100);

/// A port where metrics and probes are served.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    limits: Limits,
}

impl Server {
    /// # Errors
    ///
    /// Of bind(2) and listen(2).
    pub fn bind(address: SocketAddr) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Server { listener, limits: Limits::default() })
    }

    /// The same port, with other limits.
    #[must_use]
    pub fn limited(self, limits: Limits) -> Server {
        Server { limits, ..self }
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// Of getsockname(2).
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process ends, in the calling thread. `answers` must not block it: see [`crate::apart`].
    ///
    /// # Errors
    ///
    /// No descriptor is left for the event loop.
    pub fn run(self, answers: impl AsyncFn(Page) -> Answer + Clone + 'static) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let mut connections = Connections::new(answers, self.limits);
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => connections.accept(stream),
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        })
    }
}

struct Connections<F> {
    answers: F,
    limits: Limits,
    permits: Arc<Semaphore>,
    /// Ordered by age, the oldest first.
    open: Vec<Connection>,
}

struct Connection {
    task: AbortHandle,
    has_asked: Arc<AtomicBool>,
}

impl<F: AsyncFn(Page) -> Answer + Clone + 'static> Connections<F> {
    fn new(answers: F, limits: Limits) -> Connections<F> {
        Connections { answers, limits, permits: Arc::new(Semaphore::new(ANSWERS)), open: Vec::new() }
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
        let Connections { answers, limits, permits, .. } = self;
        let service = Service {
            answers: answers.clone(),
            permits: Arc::clone(permits),
            has_asked: Arc::clone(&has_asked),
            permit: Mutex::default(),
        };
        let serving = tokio::time::timeout(limits.until_answered, serve(stream, service, *limits));
        self.open.push(Connection { task: spawn_local(serving).abort_handle(), has_asked });
    }
}
