//! `sidestep --help`: the commands, grouped by purpose.

use clap::Command;

const GROUPS: [(&str, &[&str]); 5] = [
    ("Rings (local TCP connections in shared memory)", &["run", "status", "detach", "attach", "reasons"]),
    (
        "BPF programs (in the kernel: Services, sidecars, policy, splicing)",
        &["agent", "capture", "splice", "service", "policy"],
    ),
    ("Connections to other hosts, in user space", &["stack"]),
    ("Diagnosis and measurement", &["doctor", "explain", "lab", "bugreport"]),
    ("Help", &["completions", "help"]),
];

/// The command line with its commands in groups.
pub fn grouped(mut command: Command) -> Command {
    command.build();
    let groups: String = GROUPS.iter().map(|(title, names)| group(&command, title, names)).collect();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

fn group(command: &Command, title: &str, names: &[&str]) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(|one| one.get_about()).map(ToString::to_string);
        format!("  {name:<11} {}\n", about.unwrap_or_default())
    };
    format!("{title}:\n{}\n", names.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    #[test]
    fn each_command_is_in_one_group() {
        let mut command = Args::command();
        command.build();
        let mut commands: Vec<_> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(commands, grouped);
    }
}
