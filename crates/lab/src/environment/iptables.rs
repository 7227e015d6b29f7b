//! Loads a set-up's iptables rules.

use super::command::Cmd;
use super::error::EnvironmentError;
use super::process::run;
use super::spec::{RulesSpec, Spec};
use crate::error::AtPath;

/// Each namespace's texts are loaded atomically, in their order. Existing chains stay.
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
    // A lock file of its own, so that programs in other namespaces do not make it wait.
    command.env.insert("XTABLES_LOCKFILE".into(), spec.place.dir.join("xtables.lock").display().to_string());
    command
}
