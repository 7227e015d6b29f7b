//! Going into the background without fork(): a middle process starts the broker proper, waits until it is
//! ready, and ends. So the broker is nobody's child: whoever started it may wait for its own children in peace.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Why the broker does not run in the background.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    #[error("cannot start itself in the background")]
    Start(#[source] io::Error),
    #[error("the broker did not start")]
    NotReady,
}

/// Starts the same program again without `--background`, and returns once it is ready.
pub fn start() -> Result<(), BackgroundError> {
    // Fails only for a process group leader, which is one that a shell runs in the foreground of its own.
    let own_session = rustix::process::setsid().is_ok();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("sidestepd").args(std::env::args_os().skip(1).filter(|arg| arg != "--background"));
    command.args(["--ready-fd", "1"]).stdin(Stdio::null()).stdout(Stdio::piped());
    if !own_session {
        command.process_group(0);
    }
    sidestep_broker::server::pass_on_only_stdio();
    let mut broker = command.spawn().map_err(BackgroundError::Start)?;
    let mut line = String::new();
    if let Some(out) = broker.stdout.take() {
        // An error means what an empty line means: not ready.
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line == "ready\n" {
        return Ok(());
    }
    // It has said why on the stderr that we share; its exit status adds nothing.
    let _ = broker.wait();
    Err(BackgroundError::NotReady)
}

/// Whoever waits for the end of our stdout or stderr, or unmounts our directory, must not wait for the broker.
pub fn let_go() -> io::Result<()> {
    std::env::set_current_dir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
