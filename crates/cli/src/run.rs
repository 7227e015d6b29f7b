//! `sidestep run`: puts settings into variables and the library into LD_PRELOAD, then executes the program.

use crate::Failure;
use crate::args::Run;
use crate::daemon::{self, StartError};
use crate::doctor;
use crate::locate::{self, LocateError};
use crate::output;
use sidestep_abi::env;
use sidestep_broker::config::Config;
use sidestep_broker::listen::{Address, AddressError};
use sidestep_broker::settings::{IoUring, RingSize, SettingError, Spin, UpgradeAfter};
use sidestep_broker::trust::Rules;
use sidestep_error::chain;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const CONFIG_VARIABLE: &str = "SIDESTEP_CONFIG";

/// Why the program cannot be run.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error("name a program")]
    NoProgram,
    #[error("{}", path.display())]
    Path { path: PathBuf, source: io::Error },
    #[error("{0}: not found")]
    NotFound(String),
    #[error("{program}: cannot be executed")]
    Execute { program: String, source: io::Error },
}

/// Why the program runs without the library, or without a broker.
#[derive(Debug, thiserror::Error)]
enum Without {
    #[error(transparent)]
    Library(#[from] LocateError),
    #[error("{}", env::BROKER)]
    Address(#[from] AddressError),
    #[error(transparent)]
    Broker(#[from] StartError),
}

pub fn run(args: &Run) -> Result<ExitCode, Failure> {
    let (program, its_args) = args.command.split_first().ok_or_else(|| Failure::usage(RunError::NoProgram))?;
    let mut command = Command::new(program);
    command.args(its_args);
    if std::env::var_os(env::SWITCH).is_none_or(|value| value != "off") {
        let (config, file) = find_config(args.config.as_deref())?;
        set_variables(&mut command, args, &config)?;
        prepare(&mut command, file.as_deref());
        if config.rules == Rules::default() {
            hint(Path::new(program));
        }
    }
    Err(cannot_execute(program, sidestep_exec::exec(&mut command)))
}

/// Tells a person about workers that may not share memory with other programs. A log has no use for that.
fn hint(program: &Path) {
    if io::stderr().is_terminal()
        && let Some(advice) = doctor::users_of(program)
    {
        output::complain(format_args!("hint: {}: {advice}", program.display()));
    }
}

/// Adds library and broker. If one is missing, a line says so, and the program runs all the same.
fn prepare(command: &mut Command, config: Option<&Path>) {
    if let Err(error) = try_to_prepare(command, config) {
        output::complain(format_args!("warning: {}; the program runs on kernel TCP", chain(&error)));
    }
}

fn try_to_prepare(command: &mut Command, config: Option<&Path>) -> Result<(), Without> {
    let library = locate::library()?;
    command.env("LD_PRELOAD", preload(&library, std::env::var_os("LD_PRELOAD")));
    let address = match std::env::var(env::BROKER) {
        Ok(text) => text.parse()?,
        Err(_) => Address::of_this_user(),
    };
    daemon::ensure(&address, config)?;
    // Set explicitly, so that a program that changes its user still finds the broker of the user who started it.
    command.env(env::BROKER, address.to_string());
    Ok(())
}

/// Puts our library first: it must see a call before the libraries that were preloaded already.
fn preload(library: &Path, before: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    let others = before.unwrap_or_default();
    let others = others.as_bytes().split(|byte| b": ".contains(byte)).map(OsStr::from_bytes);
    for other in others.filter(|other| !other.is_empty() && Path::new(other) != library) {
        list.push(":");
        list.push(other);
    }
    list
}

/// The settings, and their file. An invalid file that was asked for is an error. An invalid file in a default place must not keep
/// the program from running.
fn find_config(asked: Option<&Path>) -> Result<(Config, Option<PathBuf>), Failure> {
    if let Some(file) = asked {
        let config = Config::load(file).map_err(Failure::usage)?;
        return Ok((config, Some(absolute(file)?)));
    }
    let Some(file) = default_config() else {
        return Ok((Config::default(), None));
    };
    match Config::load(&file) {
        Ok(config) => Ok((config, Some(absolute(&file)?))),
        Err(error) => {
            output::complain(format_args!("warning: {}; the file is ignored", chain(&error)));
            Ok((Config::default(), None))
        }
    }
}

fn default_config() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = set(CONFIG_VARIABLE) {
        return Some(file);
    }
    let home = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let places = [home.map(|dir| dir.join("sidestep/config.toml")), Some("/etc/sidestep/config.toml".into())];
    places.into_iter().flatten().find(|file| file.exists())
}

/// Options take precedence over variables, and those over the file. Other settings are left to the library.
fn set_variables(command: &mut Command, args: &Run, config: &Config) -> Result<(), Failure> {
    let spin = setting::<Spin>(env::SPIN, args.spin, config.spin);
    let upgrade_after = setting::<UpgradeAfter>(env::UPGRADE_AFTER, args.upgrade_after, config.upgrade_after);
    let ring_size = setting::<RingSize>(env::RING_SIZE, args.ring_size, config.ring_size);
    let io_uring = setting::<IoUring>(env::IO_URING, args.io_uring, config.io_uring);
    let settings = [
        (env::SPIN, spin),
        (env::UPGRADE_AFTER, upgrade_after),
        (env::RING_SIZE, ring_size),
        (env::IO_URING, io_uring),
    ];
    for (name, value) in settings {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let from_variable = std::env::var_os(env::REPORT).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(report) = args.report.clone().or(from_variable).or(config.report.clone()) {
        // Made absolute, since the program may change its directory before it exits.
        command.env(env::REPORT, absolute(&report)?);
    }
    Ok(())
}

/// An invalid variable is reported, but does not keep the program from running.
fn setting<T>(name: &str, option: Option<T>, config: Option<T>) -> Option<String>
where
    T: std::str::FromStr<Err = SettingError> + ToString,
{
    let variable = || {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        let warn = |error: &SettingError| {
            output::complain(format_args!("warning: {name}: {error}; the variable is ignored"));
        };
        text.parse::<T>().inspect_err(warn).ok()
    };
    option.or_else(variable).or(config).map(|value| value.to_string())
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|source| Failure::usage(RunError::Path { path: path.into(), source }))
}

/// The error, with a shell's exit code.
fn cannot_execute(program: &OsStr, source: io::Error) -> Failure {
    // For a directory in PATH that this user may not search, execvp also reports a lack of permission.
    let found = source.kind() != ErrorKind::NotFound && is_somewhere(program);
    let program = program.to_string_lossy().into_owned();
    match found {
        false => Failure { error: Box::new(RunError::NotFound(program)), code: 127 },
        true => Failure { error: Box::new(RunError::Execute { program, source }), code: 126 },
    }
}

fn is_somewhere(program: &OsStr) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program.as_encoded_bytes().contains(&b'/') || std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_goes_in_front_and_only_once() {
        let list = |before: &str| preload(Path::new("/l/s.so"), Some(before.into()));
        assert_eq!(preload(Path::new("/l/s.so"), None), "/l/s.so");
        assert_eq!(list("/a.so:/b.so"), "/l/s.so:/a.so:/b.so");
        assert_eq!(list("/a.so /l/s.so"), "/l/s.so:/a.so");
        let latin = OsStr::from_bytes(b"/\xe4.so").to_owned();
        assert_eq!(preload(Path::new("/l/s.so"), Some(latin)), OsStr::from_bytes(b"/l/s.so:/\xe4.so"));
    }
}
