//! `sidestep agent --detach`: every trace goes.

use crate::args::Args;
use crate::lock::Lock;
use crate::settings;
use sidestep_agent_api::{Question, ask};
use sidestep_ebpf::services;
use std::path::Path;
use std::time::{Duration, Instant};

/// An agent that was asked to end does so when it has answered.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn detach(args: &Args) -> Result<(), String> {
    let (pins, socket) = settings::places(args);
    let _alone = stop_running(&socket)?;
    services::remove(&pins).map_err(|error| error.to_string())?;
    // What was nobody's is gone by now; what another kind of programs keeps there stays.
    let _ = std::fs::remove_dir(&pins);
    for file in [socket.clone(), socket.with_extension("lock")] {
        let _ = std::fs::remove_file(file);
    }
    Ok(())
}

/// Nobody programs what is being removed.
fn stop_running(socket: &Path) -> Result<Lock, String> {
    if socket.exists() && Lock::take(socket).is_err() {
        ask(socket, &Question::Stop { detach: true })?;
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Lock::take(socket) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}
