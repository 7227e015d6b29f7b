//! Units of systemd: which of them start a program, as which user, and the names of their services.

use super::files::{Found, entries, find, value};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The directories of systemd's units, in order of precedence.
const UNITS: [&str; 4] =
    ["etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system"];

/// Interpreters, whose names a version may follow (python3.11). They run a different program each time, so a unit that runs one of
/// them says nothing about other programs.
const INTERPRETERS: [&str; 14] =
    ["sh", "dash", "bash", "ksh", "zsh", "busybox", "env", "java", "lua", "node", "perl", "php", "python", "ruby"];

/// The units that start a program of one of these names.
pub fn starting(names: &[&OsStr], root: &Path) -> Vec<PathBuf> {
    let units = UNITS.iter().flat_map(|place| entries(&root.join(place)));
    let services = units.filter(|path| path.extension() == Some(OsStr::new("service")));
    services.filter(|unit| starts(unit, names)).collect()
}

fn starts(unit: &Path, names: &[&OsStr]) -> bool {
    let text = std::fs::read_to_string(unit).unwrap_or_default();
    let mut commands = text.lines().filter_map(|line| value(line, "ExecStart"));
    commands.any(|command| {
        // systemd.service(5): the path may have a prefix.
        let started = Path::new(command.trim_start_matches(['@', '-', ':', '+', '!'])).file_name();
        started.is_some_and(|started| names.contains(&started))
    })
}

/// The unit that starts this program, and the user whom the unit names.
pub fn with_user(program: &Path, root: &Path) -> Option<(PathBuf, Found)> {
    if is_interpreter(program) {
        return None;
    }
    let units = starting(&[program.file_name()?], root);
    units.into_iter().find_map(|unit| {
        let found = find(&unit, "User").filter(Found::is_another)?;
        Some((unit, found))
    })
}

/// The services of these units, by the names that their control groups have. `instances`: those of a template.
pub fn services(units: &[PathBuf], instances: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in units.iter().filter_map(|unit| name(unit)) {
        match name.strip_suffix("@.service") {
            Some(template) => {
                found.extend(instances.iter().map(|instance| format!("{template}@{instance}.service")));
            }
            None => found.push(name),
        }
    }
    found.sort();
    found.dedup();
    found
}

/// An alias is a link to the unit, whose own name counts.
fn name(unit: &Path) -> Option<String> {
    let file = unit.canonicalize().unwrap_or_else(|_| unit.into());
    Some(file.file_name()?.to_str()?.to_owned())
}

fn is_interpreter(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}
