//! `sidestep` with a broker address, a home and a library that belong to the test.
#![allow(dead_code)] // each test file uses its part

use sidestep_broker::client::Operator;
use sidestep_broker::listen::Address;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// These tests need just any library that can be preloaded.
pub const STAND_IN: &str = "/lib/x86_64-linux-gnu/libm.so.6";

pub struct Sandbox {
    pub dir: TempDir,
    pub address: String,
    program: PathBuf,
}

impl Sandbox {
    /// The broker's program is beside `sidestep`, as after an installation.
    pub fn new() -> Sandbox {
        build_daemon();
        Sandbox::with_program(Path::new(env!("CARGO_BIN_EXE_sidestep")).into())
    }

    /// A copy of `sidestep` with neither library nor broker beside it.
    pub fn alone() -> Sandbox {
        let mut sandbox = Sandbox::with_program(PathBuf::new());
        sandbox.program = sandbox.path("sidestep");
        install(Path::new(env!("CARGO_BIN_EXE_sidestep")), &sandbox.program);
        sandbox
    }

    fn with_program(program: PathBuf) -> Sandbox {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = format!("@sidestep-test-cli-{}-{n}", std::process::id());
        Sandbox { dir: TempDir::new().expect("temporary directory"), address, program }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("inside the sandbox")).expect("mkdir");
        std::fs::write(&path, text).expect("write");
        path
    }

    /// An executable script.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        install(&self.write(&format!("{name}.text"), text), &path);
        path
    }

    /// `sidestep` with these arguments, and without settings from the environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SIDESTEP")) {
            command.env_remove(name);
        }
        command.env_remove("LD_PRELOAD").env_remove("XDG_CONFIG_HOME").env("HOME", self.dir.path());
        command.env_remove("SUDO_UID");
        command.env("SIDESTEP_BROKER", &self.address).env("SIDESTEP_LIBRARY", STAND_IN);
        command.args(args).current_dir(self.dir.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Said {
        Said::from(self.command(args).output().expect("spawn"))
    }

    pub fn client(&self) -> Option<Operator> {
        Operator::connect(&self.address.parse::<Address>().expect("an address")).ok()
    }
}

/// Copies a program in another process. If the test wrote the file itself, a child that another thread forks at that moment would
/// keep the file open for writing until its exec, and executing the program would fail with ETXTBSY.
fn install(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).arg(from).arg(to).status().expect("install (coreutils)");
    assert!(status.success(), "{} cannot be installed", to.display());
}

impl Drop for Sandbox {
    /// Ends the broker that was started for this sandbox.
    fn drop(&mut self) {
        let broker = self.client().and_then(|client| client.status().ok());
        if let Some(pid) = broker.and_then(|status| rustix::process::Pid::from_raw(status.pid as i32)) {
            // The broker may just be ending by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// The output of a program.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("utf-8");
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Said {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// cargo builds only this package's programs for its tests, so this builds the broker.
fn build_daemon() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_sidestep")).parent().expect("a directory");
        if sidestep_shape::built::is_current(&beside.join("sidestepd"), &["abi", "broker"]) {
            return;
        }
        let profile = if beside.ends_with("debug") { "dev" } else { "release" };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--profile", profile, "-p", "sidestep-broker", "--bin", "sidestepd"]);
        cargo.arg("--target-dir").arg(beside.parent().expect("the target directory"));
        let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
        assert!(status.success() && beside.join("sidestepd").is_file(), "sidestepd was not built");
    });
}
