//! Continuous connections: none may fail, and none may bypass the proxy.

use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{INBOUND, OUTBOUND, greeted_here};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A pause, so that the agent has a processor, too.
const PAUSE: Duration = Duration::from_micros(300);

pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Dials from the captured pod to the other one, and back.
    pub fn start(captured: &Pod, other: &Pod) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let ways = [(captured, other, OUTBOUND), (other, captured, INBOUND)];
        let clients = ways.map(|(from, to, listener)| {
            let (path, to) = (from.namespace.path(), SocketAddr::new(to.v4, 8080));
            let (stop, done) = (stop.clone(), done.clone());
            std::thread::spawn(move || {
                sidestep_testkit::enter(&path);
                let mut failures = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(PAUSE);
                    match greeted_here(to) {
                        Ok(seen) if seen.listener == listener && seen.original == Some(to) => {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(seen) => failures.push(format!("to {to}: {seen:?}")),
                        Err(error) => failures.push(format!("to {to}: {error}")),
                    }
                }
                failures
            })
        });
        Load { stop, done, clients: clients.into() }
    }

    /// Returns after so many further connections.
    pub fn wait_for(&self, more: u64) {
        let done = || self.done.load(Ordering::Relaxed);
        let (goal, deadline) = (done() + more, Instant::now() + Duration::from_secs(30));
        while done() < goal {
            assert!(Instant::now() < deadline, "{} of {goal} connections", done());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns all failures, and the number of connections that succeeded.
    pub fn stop(self) -> (Vec<String>, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (failures, self.done.load(Ordering::Relaxed))
    }
}
