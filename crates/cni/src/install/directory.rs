//! The runtime's directory of network configurations.
//!
//! A configuration of one plugin, `10-net.conf`, becomes a list, `10-net.conf.conflist`: by name it comes where the original came.
//! The original is kept as `10-net.conf.before-sidestep-cni`, which no runtime reads.

use super::chain::{self, ConfigurationError};
use super::error::InstallError;
use super::file;
use crate::config::VERSIONS;
use serde_json::Value;
use sidestep_error::chain as causes;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// What runtimes read; everything but a list has one plugin.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];
const LIST: &str = "conflist";
const ORIGINAL: &str = "before-sidestep-cni";

/// What was done to a directory.
#[derive(Debug, PartialEq, Eq)]
pub enum Changed {
    /// There is nothing that our plugin could be appended to.
    NoConfiguration,
    /// This list has our plugin already.
    Nothing(PathBuf),
    /// Our plugin was appended to this list.
    List(PathBuf),
    /// This list was made of that configuration.
    Single { from: PathBuf, list: PathBuf },
}

/// What was done, and the files before it that are no configurations.
pub struct Appended {
    pub changed: Changed,
    pub passed_over: Vec<String>,
}

/// Appends our plugin to the first configuration. Files that are none are passed over, as runtimes do, or they start no pods. A link that
/// leads nowhere here is an error: it may lead the runtime to a configuration without our plugin.
pub fn append(directory: &Path, ours: &Value) -> Result<Appended, InstallError> {
    let mut passed_over = Vec::new();
    for path in configurations(directory)? {
        let text = file::read(&path)?;
        match append_to(&path, &text, ours)? {
            Ok(changed) => return Ok(Appended { changed, passed_over }),
            Err(error) => passed_over.push(format!("{}: passed over: {}", path.display(), causes(&error))),
        }
    }
    Ok(Appended { changed: Changed::NoConfiguration, passed_over })
}

/// The inner error: the file is no configuration. A configuration of a version that our plugin does not speak stays as it is: a runtime
/// could start no pod with our plugin in it.
fn append_to(path: &Path, text: &str, ours: &Value) -> Result<Result<Changed, ConfigurationError>, InstallError> {
    let changed = if is_list(path) { chain::appended(text, ours) } else { chain::list_of(text, ours).map(Some) };
    let (new, version) = match changed.and_then(|new| Ok((new, chain::version(text)?))) {
        Ok(read) => read,
        Err(error) => return Ok(Err(error)),
    };
    if !VERSIONS.contains(&version.as_str()) {
        return Err(InstallError::Version { path: path.into(), version });
    }
    match new {
        None => Ok(Ok(Changed::Nothing(path.into()))),
        Some(new) if is_list(path) => {
            file::replace(path, path, &new)?;
            Ok(Ok(Changed::List(path.into())))
        }
        Some(new) => {
            let list = with_ending(path, LIST);
            file::replace(&list, path, &new)?;
            file::rename(path, &with_ending(path, ORIGINAL))?;
            Ok(Ok(Changed::Single { from: path.into(), list }))
        }
    }
}

/// Takes our plugin out of all configurations. Returns those that had it.
pub fn remove(directory: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let mut changed = Vec::new();
    for original in files(directory)?.into_iter().filter(|path| has_ending(path, ORIGINAL)) {
        changed.push(restore(&original)?);
    }
    for path in configurations(directory)?.into_iter().filter(|path| is_list(path) && path.is_file()) {
        // What cannot be read is not ours.
        if let Ok(Some(clean)) = chain::removed(&file::read(&path)?) {
            file::replace(&path, &path, &clean)?;
            changed.push(path);
        }
    }
    Ok(changed)
}

/// Puts the original back in place of the list that was made of it, unless another program has written a new one.
fn restore(original: &Path) -> Result<PathBuf, InstallError> {
    let path = original.with_extension("");
    if path.exists() {
        file::remove(original)?;
    } else {
        file::rename(original, &path)?;
    }
    file::remove(&with_ending(&path, LIST))?;
    Ok(path)
}

/// In the order in which runtimes read them. Also links that lead nowhere here: an absolute one leads somewhere for the runtime of a
/// host, whose directory a container sees elsewhere.
fn configurations(directory: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let is_read = |path: &PathBuf| ENDINGS.iter().any(|ending| has_ending(path, ending));
    let all = files(directory)?.into_iter().filter(is_read);
    Ok(all.filter(|path| path.is_file() || path.is_symlink()).collect())
}

/// A directory that is not there has none.
fn files(directory: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let cannot = |source| InstallError::List(directory.into(), source);
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(cannot)?,
    };
    let mut names = entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>();
    if let Ok(names) = &mut names {
        names.sort();
    }
    Ok(names.map_err(cannot)?.into_iter().map(|name| directory.join(name)).collect())
}

fn is_list(path: &Path) -> bool {
    has_ending(path, LIST)
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension() == Some(OsStr::new(ending))
}

/// The name, and an ending more.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(ending);
    name.into()
}
