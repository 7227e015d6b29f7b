//! What all set-ups of a run share: a scratch directory, a cgroup, a BPF file system, programs.

use crate::cgroup::Cgroup;
use crate::error::{AtPath, FileError};
use crate::load::{self, LoadError};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub struct RunContext {
    /// This run's scratch directory.
    dir: PathBuf,
    /// None if cgroups cannot be created.
    cgroup: Option<Cgroup>,
    /// name in templates -> path
    programs: BTreeMap<&'static str, String>,
    worlds: Cell<u32>,
}

/// Parts of the scratch directory.
pub const SHARED: &str = "shared";
pub const BPF: &str = "bpf";
/// The host's /proc, mounted before the run gets a /proc of its own.
const OUTSIDE_PROC: &str = "proc";

/// Sidestep's own programs: their names in templates, and their files, which are beside this program.
const OURS: [(&str, &str); 3] = [("sidestep", "sidestep"), ("agent", "sidestep-agent"), ("bench", "sidestep-bench")];
/// Envoy is in no PATH, but in a Python package.
const ENVOY: &str = "envoy";
/// kube-proxy is in no PATH either; the Kubernetes tests build it.
const KUBE_PROXY: (&str, &str) = ("kubeproxy", "kube-proxy");

impl RunContext {
    /// `dir` and `cgroup` exist already; their creator removes them.
    pub fn new(dir: &Path, cgroup: Option<Cgroup>) -> RunContext {
        let ours = OURS.map(|(name, file)| (name, beside(file)));
        let found = ours.into_iter().chain([(ENVOY, envoy()), (KUBE_PROXY.0, load::find_program(KUBE_PROXY.1))]);
        let programs = found.filter_map(|(name, path)| Some((name, path?.display().to_string()))).collect();
        RunContext { dir: dir.into(), cgroup, programs, worlds: Cell::new(0) }
    }

    pub fn shared(&self) -> PathBuf {
        self.dir.join(SHARED)
    }

    pub fn bpf(&self) -> PathBuf {
        self.dir.join(BPF)
    }

    /// The host's /proc, which shows the machine's other processes.
    pub fn outside_proc(&self) -> PathBuf {
        self.dir.join(OUTSIDE_PROC)
    }

    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    pub fn next_world(&self) -> u32 {
        self.worlds.replace(self.worlds.get() + 1)
    }

    /// Also accessible for servers that drop privileges.
    pub fn new_dir(&self, name: &str) -> Result<PathBuf, FileError> {
        let dir = self.dir.join(name);
        open_dir(&dir)?;
        Ok(dir)
    }

    pub fn programs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.programs.iter().map(|(name, path)| (*name, path.as_str()))
    }

    pub fn sidestep(&self) -> Result<String, ProgramError> {
        self.part("sidestep")
    }

    /// The path of a program of Sidestep.
    pub fn part(&self, file: &str) -> Result<String, ProgramError> {
        let found = beside(file).map(|path| path.display().to_string());
        found.ok_or_else(|| ProgramError::NotBuilt(file.into()))
    }

    /// Replaces the program's name by its path; the error says how to install the program.
    pub fn resolve(&self, mut argv: Vec<String>) -> Result<Vec<String>, ProgramError> {
        let name = argv.first().ok_or(ProgramError::Unnamed)?;
        if !name.contains('/') {
            argv[0] = load::require_program(name)?.display().to_string();
        }
        Ok(argv)
    }
}

/// Why a program cannot be started, and how to install it.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{0} is not beside this program; run: cargo build --release --workspace")]
    NotBuilt(String),
    #[error("the command line names no program")]
    Unnamed,
    #[error(transparent)]
    NotInstalled(#[from] LoadError),
}

/// A directory that any user may write to.
pub fn open_dir(dir: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o777);
    let made = std::fs::create_dir(dir).and_then(|()| std::fs::set_permissions(dir, all));
    made.at("make the directory", dir)
}

fn beside(file: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.parent()?.join(file);
    path.is_file().then_some(path)
}

/// Envoy in PATH, or where `tools/install-deps` puts it.
fn envoy() -> Option<PathBuf> {
    let packages = std::env::current_exe().ok()?.parent()?.parent()?.join("venv/lib");
    let versions = std::fs::read_dir(packages).into_iter().flatten().flatten();
    let mut places = versions.map(|each| each.path().join("site-packages/envoy/_bin/envoy"));
    places.find(|path| path.is_file()).or_else(|| load::find_program(ENVOY))
}
