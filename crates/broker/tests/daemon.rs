//! `sidestepd` as a process.

use sidestep_broker::client::{ClientError, Operator};
use sidestep_broker::listen::Address;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(10);

fn daemon(address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestepd"));
    command.args(["--address", address]).env_remove(sidestep_abi::env::BROKER);
    command
}

fn unused_name(what: &str) -> String {
    format!("@sidestep-test-{what}-{}", std::process::id())
}

fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Killed at the end of the test, whatever its result.
struct Running(Child);

impl Running {
    /// Starts a broker in the foreground and waits until it says that it is ready.
    fn start(address: &str, more: &[&str]) -> Running {
        let mut command = daemon(address);
        command.args(["--ready-fd", "1"]).args(more).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut running = Running(command.spawn().expect("spawn"));
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        assert_eq!(line, "ready\n");
        running
    }

    fn ended(&mut self) -> ExitStatus {
        wait_for("the broker ends", || self.0.try_wait().expect("wait"))
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("kill");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(address: &str) -> Result<Operator, ClientError> {
    Operator::connect(&address.parse::<Address>().expect("an address"))
}

#[test]
fn it_says_when_it_is_ready_and_leaves_when_idle() {
    let address = unused_name("idle");
    let mut broker = Running::start(&address, &["--idle-exit", "1"]);
    let status = client(&address).expect("it listens").status().expect("it answers");
    assert_eq!((status.pid, status.address), (broker.0.id(), address.clone()));
    assert!(broker.ended().success());
    assert!(matches!(client(&address), Err(ClientError::NotRunning(_))));
}

#[test]
fn a_signal_ends_it_cleanly() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("broker");
        let mut broker = Running::start(path.to_str().expect("utf-8"), &["--idle-exit", "0"]);
        assert!(path.exists());
        broker.signal(signal);
        let status = broker.ended();
        assert!(status.success() && status.signal().is_none(), "{status}");
        assert!(!path.exists(), "the socket is removed");
    }
}

#[test]
fn a_second_one_says_that_there_is_a_first() {
    let address = unused_name("second");
    let first = Running::start(&address, &[]);
    let output = daemon(&address).output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("another broker already serves") && said.contains(&address), "{said}");
    assert_eq!(client(&address).expect("it listens").status().expect("it answers").pid, first.0.id());
}

#[test]
fn a_killed_one_is_replaced() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("broker");
    let address = path.to_str().expect("utf-8");
    let mut first = Running::start(address, &[]);
    first.signal(rustix::process::Signal::KILL);
    first.ended();
    assert!(path.exists(), "what it left behind");
    let second = Running::start(address, &[]);
    assert_eq!(client(address).expect("it listens").status().expect("it answers").pid, second.0.id());
}

#[test]
fn only_an_allow_list_opens_the_socket_to_others() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = dir.path().join("config.toml");
    std::fs::write(&config, "[[allow]]\nuids = [1000, 1337]\n").expect("write");
    let mode = |path: &Path| std::fs::metadata(path).expect("stat").permissions().mode() & 0o777;
    for (name, more, expected) in
        [("private", vec![], 0o600), ("open", vec!["--config", config.to_str().expect("utf-8")], 0o666)]
    {
        let path = dir.path().join(name);
        let _broker = Running::start(path.to_str().expect("utf-8"), &more);
        assert_eq!(mode(&path), expected, "{name}");
    }
}

#[test]
fn errors_name_their_place() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = dir.path().join("config.toml");
    std::fs::write(&config, "spin = 'auto'\n[[allow]]\nuids = 5\n").expect("write");
    let output = daemon(&unused_name("errors")).arg("--config").arg(&config).output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("{}:3: allow.uids: expected a list", config.display())), "{said}");
    let output = daemon("nonsense").output().expect("run");
    assert_eq!(output.status.code(), Some(2), "a usage error");
}

#[test]
fn the_socket_opens_and_closes_with_the_allow_list() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (config, path) = (dir.path().join("config.toml"), dir.path().join("broker"));
    let write = |text: &str| std::fs::write(&config, text).expect("write");
    write("");
    let broker = Running::start(path.to_str().expect("utf-8"), &["--config", config.to_str().expect("utf-8")]);
    let mode = || std::fs::metadata(&path).expect("stat").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    for (text, expected) in [("[[allow]]\nuids = [1000, 1337]\n", 0o666), ("", 0o600)] {
        write(text);
        broker.signal(rustix::process::Signal::HUP);
        wait_for("the mode follows", || (mode() == expected).then_some(()));
    }
}

/// Ends a process that is not our child, if it still lives at the end of the test.
struct EndAtLast(u32);

impl Drop for EndAtLast {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.0 as i32).expect("a pid");
        let is_ours =
            std::fs::read_to_string(format!("/proc/{}/cmdline", self.0)).is_ok_and(|c| c.contains("sidestep-test-"));
        if is_ours {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn in_the_background_it_is_nobodys_child_and_holds_nothing_open() {
    let address = unused_name("background");
    let mut command = daemon(&address);
    command.args(["--background", "--idle-exit", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut middle = command.spawn().expect("spawn");
    assert!(middle.wait().expect("wait").success());
    let status = client(&address).expect("ready when the first process ends").status().expect("it answers");
    assert_ne!(status.pid, middle.id());
    let _end = EndAtLast(status.pid);
    let mut said = String::new();
    // Both streams end only because the broker has released them.
    middle.stdout.take().expect("piped").read_to_string(&mut said).expect("read");
    middle.stderr.take().expect("piped").read_to_string(&mut said).expect("read");
    assert_eq!(said, "");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", status.pid)).expect("/proc");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let (parent, session) = (fields[1], fields[3]);
    assert_ne!(parent, std::process::id().to_string());
    let own = rustix::process::getsid(None).expect("session");
    assert_ne!(session, own.as_raw_nonzero().to_string(), "a session of its own");
    assert_eq!(std::fs::read_link(format!("/proc/{}/cwd", status.pid)).expect("/proc"), Path::new("/"));
    // Asking the broker would keep it running.
    let pid = rustix::process::Pid::from_raw(status.pid as i32).expect("a pid");
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("it lives");
    let mut ended = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    let limit = rustix::time::Timespec { tv_sec: DEADLINE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut ended, Some(&limit)).expect("poll"), 1, "it leaves when idle");
}

#[test]
fn a_failure_in_the_background_is_reported() {
    let address = unused_name("failure");
    let _first = Running::start(&address, &[]);
    let output = daemon(&address).arg("--background").output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another broker already serves"));
}

#[test]
fn help_teaches() {
    let output = Command::new(env!("CARGO_BIN_EXE_sidestepd")).arg("--help").output().expect("run");
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for needed in ["Examples:", "--idle-exit", "--background", "--ready-fd", "never in"] {
        assert!(help.contains(needed), "{needed} is missing in:\n{help}");
    }
}
