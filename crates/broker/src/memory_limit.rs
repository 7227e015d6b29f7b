//! How much memory the system lets this process have: the limit of its control group, as of a container or a unit.

use std::path::{Path, PathBuf};

const CGROUPS: &str = "/sys/fs/cgroup";
/// Of version 1: the kernel's word for "no limit" is the largest number of pages, in bytes.
const NO_LIMIT: u64 = i64::MAX as u64 / 2;

/// Bytes; None if there is no limit, or none that can be read. Of several the smallest: the process's own group may be named by its
/// path, or, in a container, be the root of what is mounted.
pub fn of_this_process() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    smallest(Path::new(CGROUPS), &own)
}

/// `own`: the content of /proc/self/cgroup.
fn smallest(root: &Path, own: &str) -> Option<u64> {
    files(root, own).iter().filter_map(|file| limit_in(&std::fs::read_to_string(file).ok()?)).min()
}

/// Where limits may be, of version 2 and of version 1.
fn files(root: &Path, own: &str) -> Vec<PathBuf> {
    let mut files = vec![root.join("memory.max"), root.join("memory/memory.limit_in_bytes")];
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let Some(path) = path.strip_prefix('/') else { continue };
        match controllers {
            "" => files.push(root.join(path).join("memory.max")),
            "memory" => files.push(root.join("memory").join(path).join("memory.limit_in_bytes")),
            _ => {}
        }
    }
    files
}

/// "max", which is no number, is no limit.
fn limit_in(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|&bytes| bytes < NO_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory like that of the control groups.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in files {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a directory")).expect("mkdir");
            std::fs::write(file, text).expect("write");
        }
        root
    }

    #[test]
    fn the_smallest_limit_counts() {
        let root = tree(&[
            ("memory.max", "max\n"),
            ("pods/a/memory.max", "300\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/pods/a/memory.limit_in_bytes", "200\n"),
        ]);
        assert_eq!(smallest(root.path(), "0::/pods/a\n"), Some(300));
        assert_eq!(smallest(root.path(), "4:memory:/pods/a\n0::/pods/a\n"), Some(200));
        assert_eq!(smallest(root.path(), "4:memory:/\n0::/\n"), None, "no limit at all");
    }

    #[test]
    fn in_a_container_the_own_group_is_the_root() {
        let root = tree(&[("memory.max", "268435456\n")]);
        for own in ["0::/\n", "0::/../../pods/b\n", "", "nonsense\n"] {
            assert_eq!(smallest(root.path(), own), Some(256 << 20), "{own:?}");
        }
    }
}
