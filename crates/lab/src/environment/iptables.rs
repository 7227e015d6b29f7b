//! Loading a set-up's rules.

use super::command::Cmd;
use super::error::EnvironmentError;
use super::process::run;
use super::spec::{RulesSpec, Spec};
use crate::error::AtPath;

/// All at once, each namespace's texts in their order; chains that are there stay.
pub fn load(spec: &Spec) -> Result<(), EnvironmentError> {
    for (number, rules) in spec.rules.iter().enumerate().filter(|(_, rules)| !rules.text.trim().is_empty()) {
        let path = spec.place.dir.join(format!("rules-{number}"));
        std::fs::write(&path, &rules.text).at("write", &path)?;
        run(&command(spec, rules), Some(&path))?;
    }
    Ok(())
}

fn command(spec: &Spec, rules: &RulesSpec) -> Cmd {
    let mut command = Cmd::new("iptables", &[&rules.command, "--noflush"]);
    command.namespace = Some(rules.namespace.clone());
    // What somebody else does to other namespaces is no reason to wait.
    command.env.insert("XTABLES_LOCKFILE".into(), spec.place.dir.join("xtables.lock").display().to_string());
    command
}
