//! Where things are on nodes. They have the same paths in containers.

use sidestep_injection::{CURRENT, LIBRARY};
use std::path::{Path, PathBuf};

/// Where things are on nodes.
#[derive(Clone, Debug)]
pub struct Places {
    /// The directory with the versions of the library, and the link to the current one.
    pub library: PathBuf,
    /// The directory of the broker's socket for members.
    pub member: PathBuf,
    /// The socket's name in that directory.
    pub socket: String,
}

/// One of the two volumes that a pod gets.
pub struct Volume {
    /// Its name in the pod.
    pub name: &'static str,
    /// The directory, on the node and in containers.
    pub path: PathBuf,
    /// What the kubelet does if it is not there.
    pub kind: &'static str,
}

impl Places {
    /// The link to the current version: the runtime mounts what it leads to when the container is created, so a container keeps its
    /// version. A node without it is waited for: a loader would complain about each program. The decision about nodes sees to it that
    /// this is not long.
    pub fn library_volume(&self) -> Volume {
        Volume { name: "sidestep-library", path: self.version(), kind: "Directory" }
    }

    /// Without a broker the library does nothing, so nobody waits for one.
    pub fn member_volume(&self) -> Volume {
        Volume { name: "sidestep-member", path: self.member.clone(), kind: "DirectoryOrCreate" }
    }

    /// Both.
    pub fn volumes(&self) -> [Volume; 2] {
        [self.library_volume(), self.member_volume()]
    }

    fn version(&self) -> PathBuf {
        self.library.join(CURRENT)
    }

    /// The library's file.
    pub fn file(&self) -> PathBuf {
        self.version().join(LIBRARY)
    }

    /// The socket.
    pub fn broker(&self) -> PathBuf {
        self.member.join(&self.socket)
    }
}

impl Volume {
    /// As text.
    pub fn path(&self) -> String {
        text(&self.path)
    }
}

/// A path of [`Places`], which options have made of text.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}
