//! Whether a container's mounts leave room for ours.

use std::path::{Component, Path, PathBuf};

/// Whether a mount of the container and one at `target` do not go together: they cover each other, or no directory for ours can be
/// made in theirs, for which the runtime would refuse the container. `takes_directories`: the runtime can make some in the mount.
pub fn conflict(destination: &str, takes_directories: bool, target: &Path) -> bool {
    let destination = plain(destination);
    destination.starts_with(target) || (target.starts_with(&destination) && !takes_directories)
}

/// A path without `.` and `..`, and with `/run` for `/var/run`, which is a link to it in most images.
fn plain(path: &str) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => _ = plain.pop(),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain.strip_prefix("/var/run").map(|rest| Path::new("/run").join(rest)).unwrap_or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_covers_or_takes_nothing_conflicts() {
        let target = Path::new("/run/sidestep/member");
        for (destination, takes_directories, expected) in [
            ("/run", true, false),
            ("/var/run/", true, false),
            ("/runner", false, false),
            ("/run/other", false, false),
            ("/run", false, true),
            ("/var/run", false, true),
            ("/srv/../run", false, true),
            ("/", false, true),
            ("/run/sidestep/member", true, true),
            ("/run/sidestep/member/broker", true, true),
            ("/var/run/sidestep/member", true, true),
        ] {
            assert_eq!(conflict(destination, takes_directories, target), expected, "{destination}");
        }
    }
}
