//! Installed programs, run in a namespace.

use crate::Namespace;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Directories of servers besides PATH.
const MORE: &str = "/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// More than any client in a test needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program, which must be installed.
pub fn command(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = path.split(':').chain(MORE.split(':')).map(|place| Path::new(place).join(program)).find(|p| p.exists());
    Command::new(found.unwrap_or_else(|| panic!("{program} is missing: tools/install-deps test")))
}

/// A program that runs until this is dropped.
pub struct Running(Child);

impl Running {
    /// How the program has ended; None: it is still running.
    pub fn ended(&mut self) -> Option<String> {
        self.0.try_wait().expect("waiting for a child of this process").map(|status| status.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Namespace {
    /// Starts a program in it. The child stays in the namespace of the calling thread, and in the process's cgroup.
    pub fn start(&self, command: &mut Command) -> Running {
        let started = self.run(|| command.stdin(Stdio::null()).spawn());
        Running(started.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Runs a program that must succeed in time, and returns its output. The output must be small: it is read after the end.
    pub fn finish(&self, command: &mut Command) -> String {
        let mut running = self.start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let began = Instant::now();
        while running.ended().is_none() {
            assert!(began.elapsed() < PATIENCE, "{command:?} goes on and on");
            std::thread::sleep(Duration::from_millis(2)); // between two looks
        }
        let status = running.0.wait().expect("it has ended");
        let read = |pipe: Option<&mut dyn std::io::Read>| {
            let mut text = String::new();
            pipe.expect("a pipe").read_to_string(&mut text).expect("text");
            text
        };
        let said = read(running.0.stdout.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
        let complaints = read(running.0.stderr.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
        assert!(status.success(), "{command:?}: {status}\n{said}{complaints}");
        said
    }
}
