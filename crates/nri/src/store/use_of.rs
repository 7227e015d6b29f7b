//! Which versions processes have: mapped, or mounted in their container.

use super::LIBRARY;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why it is not known which versions are in use.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot see what the process uses; run as root of the host, with its pid namespace", path = .path.display())]
pub struct UseError {
    path: PathBuf,
    source: io::Error,
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
    pub fn used(&self, proc: &Path) -> Result<Vec<String>, UseError> {
        let failed = |path: &Path, source| UseError { path: path.to_owned(), source };
        let mut used = Vec::new();
        for entry in fs::read_dir(proc).map_err(|error| failed(proc, error))? {
            let process = entry.map_err(|error| failed(proc, error))?;
            if !process.file_name().to_string_lossy().bytes().all(|digit| digit.is_ascii_digit()) {
                continue;
            }
            let finders: [(&str, Finder); 2] = [("maps", Sought::mapped), ("mountinfo", Sought::mounted)];
            for (file, find) in finders {
                let path = process.path().join(file);
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
