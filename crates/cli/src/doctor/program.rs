//! A program: can the library be loaded into it, and would the library see its socket calls?

use super::users::{self, Asker};
use super::{Check, Verdict};
use sidestep_error::chain;
use sidestep_program::{Elf, ElfError};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Limit for scripts whose interpreter is a script, and so on; the kernel has one, too.
const DEEPEST: usize = 4;

pub fn checks(name: &OsStr) -> Vec<Check> {
    let Some(path) = find(name) else {
        return vec![Check::fails("file", "not found", "give a path, or a name that is in PATH")];
    };
    let mut checks = Vec::new();
    inspect(&path, DEEPEST, &mut checks);
    // By the name that was given: of the interpreter of a script no unit says anything.
    if checks.first().is_some_and(|file| file.verdict != Verdict::WillNotWork) {
        checks.push(users::check(&path, Asker::of_this_process(), Path::new("/")));
    }
    checks
}

fn inspect(path: &Path, depth: usize, checks: &mut Vec<Check>) {
    checks.push(file(path));
    if checks.last().is_some_and(|check| check.verdict == Verdict::WillNotWork) {
        return;
    }
    match interpreter_of(path) {
        Some(_) if depth == 0 => {
            checks.push(Check::fails("script", "scripts all the way down", "name the real program as interpreter"));
        }
        // Linux ignores setuid bits and capabilities of a script.
        Some(line) => follow_script(&line, depth, checks),
        None => {
            checks.push(rights(path));
            checks.extend(binary(path));
        }
    }
}

fn file(path: &Path) -> Check {
    let shown = path.display().to_string();
    match path.metadata() {
        Ok(meta) if !meta.is_file() => Check::fails("file", format!("{shown} is not a file"), "name a program"),
        Ok(meta) if meta.permissions().mode() & 0o111 == 0 => {
            Check::fails("file", format!("{shown} is not executable"), "chmod +x it, or name the program that reads it")
        }
        Ok(_) => match File::open(path) {
            Ok(_) => Check::ok("file", shown),
            Err(e) => Check::limited(
                "file",
                format!("{shown}: {e}"),
                "ask as a user who may read it: nothing more can be said",
            ),
        },
        Err(e) => Check::fails("file", format!("{shown}: {e}"), "give a path, or a name that is in PATH"),
    }
}

/// The loader ignores LD_PRELOAD for a program that gets more rights than the user who starts it.
fn rights(path: &Path) -> Check {
    let advice = "the loader ignores LD_PRELOAD here: its connections stay on the kernel; start it as its user, without that bit";
    match File::open(path).and_then(|file| sidestep_program::extra_rights(&file)) {
        Ok(Some(rights)) => Check::fails("rights", rights.to_string(), advice),
        // `file` has said what cannot be read.
        Ok(None) | Err(_) => Check::ok("rights", "no setuid, setgid or file capabilities"),
    }
}

fn binary(path: &Path) -> Vec<Check> {
    match read(path) {
        Ok((elf, is_go)) => checks_of(&elf, is_go),
        Err(error) => {
            vec![Check::fails("format", chain(&error).to_string(), "name an ELF program or a script")]
        }
    }
}

/// Why nothing is known of a program.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("cannot open it")]
    Open(#[from] io::Error),
    #[error(transparent)]
    Format(#[from] ElfError),
}

/// Its headers, and whether the Go tool chain built it.
fn read(path: &Path) -> Result<(Elf, bool), ReadError> {
    let file = File::open(path)?;
    Ok((sidestep_program::read(&file)?, sidestep_program::is_go(&file)))
}

fn checks_of(elf: &Elf, is_go: bool) -> Vec<Check> {
    if let Some(other) = &elf.other_machine {
        return vec![Check::fails(
            "format",
            format!("built for {other}"),
            "the library is built for x86_64, 64 bit: use such a build",
        )];
    }
    let mut checks = vec![Check::ok("format", "ELF, x86_64")];
    checks.push(match &elf.loader {
        None => Check::fails(
            "linking",
            "static: no loader, so nothing can be preloaded",
            "its connections stay on the kernel; link it dynamically (for Go: CGO_ENABLED=1 is not enough, see `language`)",
        ),
        Some(loader) if !Path::new(loader).exists() => {
            Check::fails("linking", format!("its loader {loader} does not exist"), "install the C library it was built for")
        }
        Some(loader) => Check::ok("linking", format!("dynamic ({loader})")),
    });
    checks.push(if is_go {
        Check::fails(
            "language",
            "Go: it makes system calls itself, past every library",
            "its connections stay on the kernel; the other end notices nothing",
        )
    } else {
        Check::ok("language", "not Go: it calls the C library")
    });
    checks
}

/// The command of a `#!` line: a program and at most one argument.
fn interpreter_of(path: &Path) -> Option<String> {
    sidestep_program::interpreter_line(&File::open(path).ok()?).ok()?
}

fn follow_script(line: &str, depth: usize, checks: &mut Vec<Check>) {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let by_env = Path::new(first).file_name() == Some(OsStr::new("env"));
    // `env -S prog args`, `env VAR=x prog`: the program is the first word that is neither an option nor an assignment.
    let named = if by_env { words.find(|word| !word.starts_with('-') && !word.contains('=')) } else { Some(first) };
    match named.and_then(|name| find(OsStr::new(name))) {
        Some(program) => {
            checks.push(Check::ok("script", format!("run by {}", program.display())));
            inspect(&program, depth - 1, checks);
        }
        None => checks.push(Check::fails(
            "script",
            format!("its interpreter is not there: {line}"),
            "install the interpreter",
        )),
    }
}

/// Finds a program as exec does: a name with a slash is a path, any other is looked for in PATH.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let executable = |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(executable)
}
