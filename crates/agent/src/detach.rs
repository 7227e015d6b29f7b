//! `sidestep agent --detach`: every trace goes.

use crate::args::Args;
use crate::lock::{self, Lock};
use crate::{answer, settings};
use sidestep_agent_api::{Question, ask};
use sidestep_ebpf::services;
use std::path::Path;
use std::time::{Duration, Instant};

/// An agent that was asked to end does so when it has answered.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn detach(args: &Args) -> Result<(), String> {
    let (pins, socket) = settings::places(args);
    let _alone = stop_running(&pins, &socket)?;
    services::remove(&pins).map_err(|error| error.to_string())?;
    // What was nobody's is gone by now; what another kind of programs keeps there stays.
    let _ = std::fs::remove_dir(&pins);
    // Whoever still answers has other pins.
    if answer::is_answered(&socket) { Ok(()) } else { answer::remove(&socket) }
}

/// Nobody programs what is being removed.
fn stop_running(pins: &Path, socket: &Path) -> Result<Lock, String> {
    if let Some(lock) = Lock::take(pins)? {
        return Ok(lock);
    }
    let running = lock::held(pins);
    ask(socket, &Question::Stop { detach: true, pins: lock::identity(pins) })
        .map_err(|why| format!("{running}; name its --socket, or end it first (SIGTERM). Nothing is removed: {why}"))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Lock::take(pins)? {
            Some(lock) => return Ok(lock),
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            None => return Err(format!("{running}, and does not end: see its log")),
        }
    }
}
