//! A broker as a process of its own.
#![allow(dead_code)] // each test file uses its part

use sidestep_broker::listen::Address;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub struct Daemon {
    pub address: Address,
    pub child: Child,
}

/// Without an idle limit, at an address of its own. `by`: a program and arguments that execute the broker's.
fn command(by: &[&str], more: &[&str]) -> (Command, Address) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let address = Address::Abstract(format!("sidestep-test-daemon-{}-{n}", std::process::id()));
    let words = [by, &[env!("CARGO_BIN_EXE_sidestepd")]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["--address", &address.to_string(), "--idle-exit", "0"]).args(more);
    (command, address)
}

impl Daemon {
    pub fn start(more: &[&str]) -> Daemon {
        Daemon::limited(more, None)
    }

    /// With this limit of open files.
    pub fn limited(more: &[&str], files: Option<u64>) -> Daemon {
        Daemon::limited_by(&[], more, files)
    }

    /// The same, executed by a program with arguments.
    pub fn limited_by(by: &[&str], more: &[&str], files: Option<u64>) -> Daemon {
        let (mut command, address) = command(by, more);
        command.args(["--ready-fd", "1"]);
        let limit = move || {
            use rustix::process::{Resource, Rlimit, setrlimit};
            files.map_or(Ok(()), |n| Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(n), maximum: Some(n) })?))
        };
        // SAFETY: one system call between fork and exec.
        unsafe { command.pre_exec(limit) };
        let mut child = command.stdout(Stdio::piped()).spawn().expect("spawn");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        assert_eq!(line, "ready\n");
        Daemon { address, child }
    }

    /// A broker that writes its complaints to `log`. It cannot report readiness, since that would release its standard
    /// descriptors.
    pub fn logging(more: &[&str], log: std::fs::File) -> Daemon {
        let (mut command, address) = command(&[], more);
        let child = command.stderr(log).spawn().expect("spawn");
        crate::common::wait_for("it listens", || address.connect().ok());
        Daemon { address, child }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).expect("kill");
    }

    /// Stops the process. When this returns, none of its threads runs.
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        crate::common::wait_for("all threads are stopped", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("/proc").flatten();
            let mut stats = tasks.map(|task| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default());
            // A thread in an uninterruptible sleep (D) does not run either.
            stats.all(|stat| stat.contains(") T ") || stat.contains(") D ")).then_some(())
        });
    }

    pub fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// Ends it by SIGTERM, and returns how long that took.
    pub fn terminate(&mut self) -> Duration {
        let began = Instant::now();
        self.signal(rustix::process::Signal::TERM);
        crate::common::wait_for("the broker ends", || self.child.try_wait().expect("wait"));
        began.elapsed()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
