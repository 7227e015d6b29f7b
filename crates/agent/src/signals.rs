//! Signals. SIGTERM and SIGINT end the agent at once, whatever it is doing; programs and tables stay. SIGHUP makes it read its
//! settings and sources again.

use crate::answer;
use crate::args::Args;
use crate::message::{Message, Refresher};
use crate::settings::Settings;
use sidestep_error::chain;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// The main thread ends within milliseconds, unless it is writing tables for thousands of Services or waits until an answer has
/// been read.
const PATIENCE: Duration = Duration::from_secs(1);

/// Signals are caught from now on, but have no effect before [`Caught::follow`].
pub struct Caught(Signals);

/// Set while the kernel verifies the programs, which takes seconds on a busy machine: meanwhile no messages are read.
pub type IsLoading = Arc<AtomicBool>;

impl Caught {
    pub fn new() -> io::Result<Caught> {
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map(Caught)
    }

    /// Handles signals for ever.
    pub fn follow(mut self, agent: &Agent) {
        for signal in self.0.forever() {
            match signal {
                SIGHUP => agent.reload(),
                _ => agent.end(),
            }
        }
    }
}

/// What the handlers need.
pub struct Agent {
    pub args: Args,
    pub inbox: Sender<Message>,
    pub refreshers: Vec<Refresher>,
    pub is_loading: IsLoading,
    pub socket: PathBuf,
}

impl Agent {
    fn reload(&self) {
        match Settings::new(&self.args) {
            Ok(settings) => {
                tracing::info!("SIGHUP: settings and sources are read again");
                // Fails if the main thread has ended.
                let _ = self.inbox.send(Message::Settings(Box::new(settings)));
            }
            Err(error) => {
                tracing::error!("SIGHUP: sources are read again; settings stay what they were: {}", chain(&error));
            }
        }
        self.refreshers.iter().for_each(|refresh| refresh());
    }

    fn end(&self) {
        if !self.is_loading.load(Ordering::SeqCst) && self.inbox.send(Message::Stop).is_ok() {
            std::thread::sleep(PATIENCE);
        }
        // Reached only if the main thread has not ended the process in time. An agent can be killed at any moment: the next one
        // takes over what it has left.
        tracing::info!("ended at once, in the middle of something: the next agent takes over what is programmed");
        let _ = answer::remove(&self.socket);
        std::process::exit(0);
    }
}
