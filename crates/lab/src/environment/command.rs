//! How a program is started: in its cgroup and network namespace, as its user, on its processors.

use crate::scenario::User;
use indexmap::IndexMap;
use std::path::PathBuf;
use std::process::Command;

/// Where ip-netns(8) keeps namespaces.
pub const NETNS: &str = "/run/netns";

const SYSTEM: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// A program and its surroundings. Each wrapper executes the next one by execve(2), so the process stays the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cmd {
    /// Name in messages, and of its log.
    pub name: String,
    pub argv: Vec<String>,
    pub env: IndexMap<String, String>,
    /// Name of the network namespace for ip-netns(8).
    pub namespace: Option<String>,
    pub cgroup: Option<PathBuf>,
    pub user: Option<User>,
    pub cpus: Option<String>,
}

impl Cmd {
    pub fn new(name: &str, argv: &[&str]) -> Cmd {
        Cmd { name: name.into(), argv: argv.iter().map(|word| word.to_string()).collect(), ..Cmd::default() }
    }

    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut push = |more: &[&str]| words.extend(more.iter().map(|word| word.to_string()));
        if let Some(cgroup) = &self.cgroup {
            let members = cgroup.join("cgroup.procs");
            push(&["sh", "-c", "echo 0 >\"$0\" && exec \"$@\"", &members.display().to_string()]);
        }
        if let Some(namespace) = &self.namespace {
            // Not `ip netns exec`, which unmounts cgroups.
            push(&["nsenter", &format!("--net={NETNS}/{namespace}"), "--"]);
        }
        if let Some(User { uid, gid }) = self.user {
            push(&["setpriv", "--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
        }
        if let Some(cpus) = &self.cpus {
            push(&["taskset", "-c", cpus]);
        }
        words.extend(self.argv.iter().cloned());
        words
    }

    /// The command. Variables by which Sidestep is configured are not inherited from the caller.
    pub fn command(&self) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        for (name, _) in std::env::vars_os() {
            if name == "LD_PRELOAD" || name.to_string_lossy().starts_with("SIDESTEP") {
                command.env_remove(name);
            }
        }
        // An ordinary user's PATH lacks the directories of servers and of tools that the lab calls.
        command.env("PATH", format!("{}:{SYSTEM}", std::env::var("PATH").unwrap_or_default()));
        command.envs(&self.env);
        command
    }
}
