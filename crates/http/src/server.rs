//! Which connections are served.

use crate::answer::{Answer, Page};
use crate::asked::Asked;
use crate::limits::Limits;
use crate::service::{Service, serve};
use std::io;
use std::net::{SocketAddr, TcpListener};
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
        let (permits, limits) = (Arc::new(Semaphore::new(ANSWERS)), self.limits);
        self.run_with(async move |stream, asked| {
            let (answers, permits) = (answers.clone(), Arc::clone(&permits));
            serve(stream, Service { answers, permits, asked, permit: Mutex::default() }, limits).await;
        })
    }

    /// The same for another protocol: `serve` gets each connection, which ends with it, and says when the request is there. It must
    /// not block.
    ///
    /// # Errors
    ///
    /// No descriptor is left for the event loop.
    pub fn run_with(self, serve: impl AsyncFn(TcpStream, Asked) + Clone + 'static) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let mut connections = Connections { serve, limits: self.limits, open: Vec::new() };
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
    serve: F,
    limits: Limits,
    /// Ordered by age, the oldest first.
    open: Vec<Connection>,
}

struct Connection {
    task: AbortHandle,
    asked: Asked,
}

impl<F: AsyncFn(TcpStream, Asked) + Clone + 'static> Connections<F> {
    fn accept(&mut self, stream: TcpStream) {
        self.open.retain(|connection| !connection.task.is_finished());
        if self.open.len() >= self.limits.open {
            let idle = self.open.iter().position(|connection| !connection.asked.is_noted());
            // All have sent their requests: the new connection is closed.
            let Some(idle) = idle else { return };
            self.open.remove(idle).task.abort();
        }
        let (serve, asked, within) = (self.serve.clone(), Asked::default(), self.limits.until_answered);
        let its_own = asked.clone();
        let serving = async move { tokio::time::timeout(within, serve(stream, its_own)).await };
        self.open.push(Connection { task: spawn_local(serving).abort_handle(), asked });
    }
}
