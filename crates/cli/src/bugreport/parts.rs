//! The parts of the report.

use super::gather::{Source, Text};
use super::{machine, processes};
use crate::args::Bugreport;
use crate::locate;
use sidestep_agent_api::{Answer, Question, ask};
use sidestep_error::chain;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of the report.
pub struct Part {
    pub file: &'static str,
    /// For the user, who decides whether to send it.
    pub about: &'static str,
    pub source: Source,
}

/// Variables that commands of the report get, beside our own. Nothing else of the environment reaches them.
const KEPT: [&str; 4] = ["PATH", "HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"];
/// Lines of the kernel's log are kept if they contain one of these.
const SUBJECTS: &[&str] = &["bpf", "btf", "xdp", "sidestep", "af_xdp", "verifier"];

pub fn all(args: &Bugreport) -> Vec<Part> {
    let broker = args.broker.address().to_string();
    let socket = args.socket.display().to_string();
    let broker = |words: &[&str]| own(words, &["--address", &broker]);
    let agent = |words: &[&str]| own(words, &["--socket", &socket]);
    let part = |file, about, source| Part { file, about, source };
    vec![
        part("versions.txt", "versions, paths and sizes of Sidestep's programs", function(versions)),
        part("kernel.txt", "kernel, distribution, mounts of cgroups and BPF, limits", function(|| Ok(machine::text()))),
        part("processes.txt", "memory, threads and descriptors of Sidestep's own processes", function(processes::text)),
        part("doctor.json", "what works on this machine (sidestep doctor)", broker(&["doctor", "--json"])),
        part(
            "status.json",
            "the broker: processes, their users and programs, addresses and ports of connections, reasons",
            broker(&["status", "--json"]),
        ),
        part("metrics.txt", "the broker's metrics", broker(&["status", "--metrics"])),
        part(
            "services.json",
            "the agent: whether its tables are as they should be",
            agent(&["service", "check", "--json"]),
        ),
        part("captures.json", "the agent: captured pods and their troubles", agent(&["capture", "list", "--json"])),
        part("policies.json", "the agent: policies, their rules and pods", agent(&["policy", "list", "--json"])),
        part("agent.json", "the agent's metrics", {
            let socket = args.socket.clone();
            function(move || agent_metrics(&socket))
        }),
        part("dmesg.txt", "lines of the kernel's log about BPF and XDP, if you may read it", dmesg()),
    ]
}

fn function(function: impl FnOnce() -> Text + Send + 'static) -> Source {
    Source::Function(Box::new(function))
}

/// A command of this program.
fn own(words: &[&str], more: &[&str]) -> Source {
    let mut command = Command::new("/proc/self/exe");
    confine(&mut command);
    command.args(words).args(more);
    Source::Command(command)
}

fn dmesg() -> Source {
    let mut command = Command::new("dmesg");
    confine(&mut command);
    Source::Lines(command, SUBJECTS)
}

fn confine(command: &mut Command) {
    let is_kept = |name: &str| KEPT.contains(&name) || name.starts_with("SIDESTEP");
    command.env_clear();
    command.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_kept)));
}

fn agent_metrics(socket: &Path) -> Text {
    match ask(socket, &Question::Metrics)? {
        Answer::Metrics(metrics) => Ok(serde_json::to_string(&metrics)?),
        _ => Err(OtherVersion.into()),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the agent has another version than this command")]
struct OtherVersion;

fn versions() -> Text {
    let mut text = format!("sidestep {}\n", env!("CARGO_PKG_VERSION"));
    for (name, found) in [
        (locate::LIBRARY, locate::library()),
        (locate::DAEMON, locate::daemon()),
        (locate::AGENT, locate::agent()),
        (locate::STACK, locate::stack()),
        (locate::LAB, locate::lab()),
    ] {
        text += &match found {
            Ok(path) => format!("{name}: {}\n", of(&path)),
            Err(error) => format!("{name}: {}\n", chain(&error)),
        };
    }
    Ok(text)
}

/// Path, size and, of a program, what it says of its version.
fn of(path: &PathBuf) -> String {
    let size = std::fs::metadata(path).map_or(0, |meta| meta.len());
    let mut said = format!("{}, {size} bytes", path.display());
    if path.extension().is_none() {
        let mut command = Command::new(path);
        confine(&mut command);
        command.arg("--version");
        let version = super::gather::gather(Source::Command(command)).bytes;
        said += &format!(", {}", String::from_utf8_lossy(&version).trim());
    }
    said
}
