//! Which versions processes have: mapped, or mounted in their container.
//!
//! A file of proc(5) can make its reader wait for as long as the process itself waits, as for a file server that is gone. So a
//! thread looks, and whoever asked waits for it only so long.

use super::LIBRARY;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// Longest look at all processes, which takes a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why it is not known which versions are in use.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum UseError {
    #[error("{path}: cannot see what the process uses; run as root of the host, with its pid namespace", path = .path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error("{path}: the look at all processes has not ended within {s} s, and is at this file; try again when that process goes on",
        path = .path.display(), s = .within.as_secs())]
    Late { path: PathBuf, within: Duration },
    #[error("cannot start the thread that looks at all processes")]
    Thread(#[source] io::Error),
}

/// Versions that are looked for.
pub struct Sought {
    /// By inode: names of versions, each with the device of its library.
    inodes: HashMap<u64, (u64, String)>,
    names: Vec<String>,
}

impl Sought {
    /// Versions of a store, by their names.
    pub fn new(store: &Path, names: Vec<String>) -> Sought {
        let found = |name: &String| {
            let meta = store.join(name).join(LIBRARY).metadata().ok()?;
            Some((meta.ino(), (meta.dev(), name.clone())))
        };
        Sought { inodes: names.iter().filter_map(found).collect(), names }
    }

    /// Those that a process has, by the directory `proc` of a proc(5) of the host.
    pub fn used(self, proc: &Path) -> Result<Vec<String>, UseError> {
        self.used_within(PATIENCE, proc)
    }

    /// A thread that waits for a process is left behind, until this process ends.
    fn used_within(self, within: Duration, proc: &Path) -> Result<Vec<String>, UseError> {
        let (proc, at) = (proc.to_owned(), Arc::new(Mutex::new(proc.to_owned())));
        let (found, is_found) = mpsc::channel();
        let its_at = at.clone();
        // Nobody hears of what is found too late.
        let look = move || drop(found.send(self.look(&proc, &its_at)));
        thread::Builder::new().name("processes".into()).spawn(look).map_err(UseError::Thread)?;
        let late = |_| Err(UseError::Late { path: locked(&at).clone(), within });
        is_found.recv_timeout(within).unwrap_or_else(late)
    }

    /// `at`: the file that is being read.
    fn look(&self, proc: &Path, at: &Mutex<PathBuf>) -> Result<Vec<String>, UseError> {
        let failed = |path: &Path, source| UseError::Look { path: path.to_owned(), source };
        let mut used = Vec::new();
        for entry in fs::read_dir(proc).map_err(|error| failed(proc, error))? {
            let process = entry.map_err(|error| failed(proc, error))?;
            if !process.file_name().to_string_lossy().bytes().all(|digit| digit.is_ascii_digit()) {
                continue;
            }
            let finders: [(&str, Finder); 2] = [("maps", Sought::mapped), ("mountinfo", Sought::mounted)];
            for (file, find) in finders {
                let path = process.path().join(file);
                locked(at).clone_from(&path);
                match self.read(&path, find, &mut used) {
                    Err(error) if !has_ended(&error) => return Err(failed(&path, error)),
                    _ => {}
                }
            }
        }
        Ok(used)
    }

    fn read(&self, path: &Path, find: Finder, used: &mut Vec<String>) -> io::Result<()> {
        for line in BufReader::new(File::open(path)?).split(b'\n') {
            if let Some(name) = find(self, &String::from_utf8_lossy(&line?))
                && !used.iter().any(|known| known == name)
            {
                used.push(name.to_owned());
            }
        }
        Ok(())
    }

    /// A line of maps: `address permissions offset major:minor inode path`. Some file systems show another device there than
    /// stat(2) does; then the path counts.
    fn mapped(&self, line: &str) -> Option<&str> {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (device, inode) = (device(fields.next()?)?, fields.next()?.parse().ok()?);
        let (expected, name) = self.inodes.get(&inode)?;
        let is_path = fields.next().is_some_and(|path| path.ends_with(&format!("/{name}/{LIBRARY}")));
        (device == *expected || is_path).then_some(name)
    }

    /// A line of mountinfo: `number parent major:minor root mount-point ...`. The root of ours is the version's directory in the
    /// file system that it is in.
    fn mounted(&self, line: &str) -> Option<&str> {
        let root = line.split_ascii_whitespace().nth(3)?;
        let last = root.rsplit('/').next()?;
        self.names.iter().map(String::as_str).find(|name| *name == last)
    }
}

fn locked(path: &Mutex<PathBuf>) -> MutexGuard<'_, PathBuf> {
    path.lock().unwrap_or_else(PoisonError::into_inner)
}

type Finder = for<'a> fn(&'a Sought, &str) -> Option<&'a str>;

/// A device by its numbers in hexadecimal, as in maps.
fn device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    let number = |part| u32::from_str_radix(part, 16).ok();
    Some(rustix::fs::makedev(number(major)?, number(minor)?))
}

/// A process that has ended has no mounts (EINVAL) until its parent has noticed, and then no files.
fn has_ended(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::SRCH, Errno::INVAL].iter().any(|ended| error.raw_os_error() == Some(ended.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_cannot_be_read_ends_the_look() {
        let proc = tempfile::tempdir().expect("a directory");
        fs::create_dir(proc.path().join("1")).expect("a directory");
        let maps = proc.path().join("1/maps");
        // Whoever opens it waits for a writer.
        assert!(Command::new("mkfifo").arg(&maps).status().expect("mkfifo (coreutils)").success());
        let sought = Sought { inodes: HashMap::new(), names: Vec::new() };
        let error = sought.used_within(Duration::from_millis(100), proc.path()).expect_err("it cannot be known");
        assert!(matches!(&error, UseError::Late { path, .. } if *path == maps), "{error:?}");
    }
}
