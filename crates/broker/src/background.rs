//! Going into the background without fork(): a middle process starts the broker, waits until the broker is ready, and ends.
//! Then the broker is no child of the process that started it, and cannot disturb that process's wait() for its own children.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Why the broker does not run in the background.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    #[error("cannot start the broker in the background")]
    Start(#[source] io::Error),
    #[error("the broker did not start")]
    NotReady,
}

/// Starts the same program again without `--background`, and returns once it is ready.
pub fn start() -> Result<(), BackgroundError> {
    // Fails only for a process group leader, for instance a command that a shell runs in the foreground.
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
        // An error means the same as an empty line: the broker is not ready.
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line == "ready\n" {
        return Ok(());
    }
    // The broker has reported the cause on the stderr that both share; its exit status adds nothing.
    let _ = broker.wait();
    Err(BackgroundError::NotReady)
}

/// Releases stdin, stdout, stderr and the working directory. Otherwise a reader of our output, or an unmount of the directory,
/// would wait for the broker.
pub fn let_go() -> io::Result<()> {
    std::env::set_current_dir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
