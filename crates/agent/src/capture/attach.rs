//! All pods share one attachment, so it must be at a cgroup that contains all of them.

use sidestep_ebpf::services;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why nothing can be attached to a cgroup.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("--cgroup {}", path.display())]
    Unreachable { path: PathBuf, source: io::Error },
    #[error("--cgroup {}: not a directory of cgroup v2", .0.display())]
    OtherKind(PathBuf),
}

/// The cgroup to attach to, so that it covers `wanted` and the present cgroup.
pub fn cover(pins: &Path, wanted: &Path) -> Result<PathBuf, CgroupError> {
    let unreachable = |source| CgroupError::Unreachable { path: wanted.into(), source };
    let wanted = wanted.canonicalize().map_err(unreachable)?;
    if !wanted.join("cgroup.procs").exists() {
        return Err(CgroupError::OtherKind(wanted));
    }
    let Some(present) = services::attached_to(pins) else { return Ok(wanted) };
    if let Some(above) = ancestors(&wanted).find(|path| number(path) == Some(present)) {
        return Ok(above.into());
    }
    // The nearest ancestor that contains both.
    let both = ancestors(&wanted).find(|path| holds(path, present));
    Ok(both.unwrap_or(&wanted).into())
}

/// The cgroup and its ancestors. The hierarchy's root has cgroup.procs; the directory that it is mounted on has not.
pub fn ancestors(cgroup: &Path) -> impl Iterator<Item = &Path> {
    cgroup.ancestors().take_while(|path| path.join("cgroup.procs").exists())
}

fn number(cgroup: &Path) -> Option<u64> {
    std::fs::metadata(cgroup).ok().map(|found| found.ino())
}

fn holds(cgroup: &Path, inner: u64) -> bool {
    if number(cgroup) == Some(inner) {
        return true;
    }
    let entries = std::fs::read_dir(cgroup).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).any(|entry| holds(&entry.path(), inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_error::chain;

    #[test]
    fn a_cgroup_that_is_none_is_named_with_the_option() {
        let told = |path: &str| chain(&cover(Path::new("/nonexistent"), Path::new(path)).unwrap_err()).to_string();
        assert_eq!(told("/nonexistent"), "--cgroup /nonexistent: No such file or directory (os error 2)");
        assert_eq!(told("/proc"), "--cgroup /proc: not a directory of cgroup v2");
    }
}
