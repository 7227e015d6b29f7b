//! Starts the lab as users do, with scenarios made for a test.
#![allow(dead_code)] // Each test uses a part of it.

use sidestep_lab::result::{Run, read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A scenario whose baseline waits 20 ms; `other` is the second variant's definition.
pub fn scenario(load: &str, processes: &str, other: &str) -> String {
    format!(
        "name: test\nabout: a test\nvalues: {{time: 0.02}}\nprocesses:\n  {processes}\n\
         variants:\n  plain: {{about: as it is}}\n  other:\n    about: otherwise\n    {other}\n\
         baseline: plain\nload:\n  tool: command\n  {load}\n  seconds: 0.1\n  warmup: 0\n\
         design: {{judge: [p50], most_rounds: 6, least_rounds: 6, foreign: 0.999, steal: 0.999}}\n"
    )
}

pub struct Lab(TempDir);

pub struct Running(Child);

impl Lab {
    pub fn new(scenario: &str) -> Lab {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("test.yaml"), scenario).expect("a file");
        Lab(dir)
    }

    pub fn start(&self, options: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-lab"));
        command.args(["run", "./test.yaml"]).args(options).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().expect("the lab"))
    }

    pub fn run(&self, options: &[&str]) -> Output {
        self.start(options).wait()
    }

    /// The output of a run that fails.
    pub fn fails(&self, options: &[&str]) -> String {
        self.ends_with(1, options)
    }

    /// The output of a run that must fail before anything is started.
    pub fn is_not_begun(&self, options: &[&str]) -> String {
        self.ends_with(2, options)
    }

    fn ends_with(&self, code: i32, options: &[&str]) -> String {
        let done = self.run(options);
        assert_eq!(done.status.code(), Some(code), "{done:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    pub fn result(&self) -> Run {
        read(&self.0.path().join("test.json")).expect("a result")
    }

    pub fn wait_for_rounds(&self, rounds: u32) {
        let file = self.0.path().join("test.json");
        let done = || read(&file).is_ok_and(|run| run.cells[0].trials.iter().any(|trial| trial.round + 1 >= rounds));
        until("rounds are done", done);
    }

    /// Checks only for this test's runs, since others may run at the same time.
    pub fn assert_nothing_is_left(&self) {
        let own = format!("{}", self.0.path().display());
        assert!(processes(&own).is_empty(), "{:?}", processes(&own));
    }
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status();
        assert!(done.expect("kill").success());
    }

    /// Waits for the end. Unless the run was killed, nothing may be left of its files.
    pub fn wait(self) -> Output {
        let pid = self.pid();
        let done = self.0.wait_with_output().expect("the lab's end");
        if done.status.code().is_some() {
            assert!(leftovers(pid).iter().all(|path| !path.exists()), "{:?}", leftovers(pid));
        }
        done
    }
}

/// The paths that a run uses.
pub fn leftovers(pid: u32) -> [PathBuf; 3] {
    let name = format!("sidestep-lab-{pid}");
    let places = [std::env::temp_dir(), "/sys/fs/cgroup".into(), "/sys/fs/cgroup/unified".into()];
    places.map(|place| place.join(&name))
}

/// No other user may read or change the directory, whose content root executes.
pub fn assert_private(scratch: &Path) {
    let mode = scratch.metadata().expect("a directory").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(std::fs::read_dir(scratch).expect("a directory").count(), 0, "it is another file system's");
}

/// Command lines of running processes that contain this.
pub fn processes(part: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(part)).collect()
}

const LIMIT: Duration = Duration::from_secs(30);

pub fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}: not after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
