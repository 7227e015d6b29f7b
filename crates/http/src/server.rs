//! Which connections are served.

use crate::address::listen;
use crate::answer::{Answer, Page};
use crate::asked::Asked;
use crate::connections::Connections;
use crate::limits::Limits;
use crate::service::{Service, serve};
use crate::turn::Turns;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

/// Pause after accept(2) has failed, perhaps for lack of descriptors.
const AGAIN: Duration = Duration::from_millis(100);

/// A port where metrics and probes are served.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    limits: Limits,
}

impl Server {
    /// At `[::]` also where the kernel has no IPv6: then at 0.0.0.0.
    ///
    /// # Errors
    ///
    /// Of bind(2) and listen(2).
    pub fn bind(address: SocketAddr) -> io::Result<Server> {
        let listener = listen(address, TcpListener::bind)?;
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
        let (turns, limits) = (Turns::default(), self.limits);
        self.run_with(async move |stream, asked| {
            let (answers, turns) = (answers.clone(), turns.clone());
            serve(stream, Service { answers, turns, asked, held: Mutex::default() }, limits).await;
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
            let mut accepting = Accepting { serve, limits: self.limits, open: Connections::default() };
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => accepting.accept(stream),
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        })
    }
}

struct Accepting<F> {
    serve: F,
    limits: Limits,
    open: Connections,
}

impl<F: AsyncFn(TcpStream, Asked) + Clone + 'static> Accepting<F> {
    fn accept(&mut self, stream: TcpStream) {
        if self.open.count() >= self.limits.open && !self.open.replace_one() {
            return; // which closes it
        }
        let (serve, asked, within) = (self.serve.clone(), Asked::default(), self.limits.until_answered);
        let its_own = asked.clone();
        let serving = async move { tokio::time::timeout(within, serve(stream, its_own)).await };
        self.open.add(spawn_local(serving).abort_handle(), asked);
    }
}
