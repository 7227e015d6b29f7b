//! Why policies are not in force.

use sidestep_ebpf::error::Error;
use std::path::Path;
use std::sync::Arc;

/// A problem of the whole node: of identities, bypasses or admission.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("policies cannot be enforced")]
    NotOpen(#[source] Error),
    #[error("this node is still armed")]
    StillArmed(#[source] Error),
    #[error("this node is not armed")]
    NotArmed(#[source] Error),
    #[error(transparent)]
    Tables(Error),
}

/// Why a pod's policies are not in force.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// The problem of the whole node.
    #[error(transparent)]
    Node(Arc<Trouble>),
    #[error(transparent)]
    Tables(#[from] Error),
    #[error("policies are as an earlier agent left them, since not every policy can be read")]
    Inherited,
    #[error("policies")]
    Policies(#[source] Error),
}

impl EnforceError {
    /// See [`Error::known_as`].
    pub fn known_as(self, held: &Path, name: &Path) -> EnforceError {
        match self {
            EnforceError::Tables(error) => EnforceError::Tables(error.known_as(held, name)),
            EnforceError::Policies(error) => EnforceError::Policies(error.known_as(held, name)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_error::chain;

    #[test]
    fn a_pod_is_told_why_the_whole_node_enforces_nothing() {
        let denied = || Error::new("open the tables", std::io::Error::from_raw_os_error(13));
        let error = EnforceError::Node(Arc::new(Trouble::NotOpen(denied())));
        let expected = "policies cannot be enforced: open the tables: Permission denied (os error 13)";
        assert_eq!(chain(&error).to_string(), expected);
    }

    #[test]
    fn policies_that_are_not_written_say_at_which_namespace() {
        let (held, name) = (Path::new("/proc/self/fd/7"), Path::new("/run/netns/web"));
        let refused = Error::at("attach the inbound program to", held, std::io::Error::from_raw_os_error(1));
        let error = EnforceError::Policies(refused).known_as(held, name);
        let expected = "policies: attach the inbound program to /run/netns/web: Operation not permitted (os error 1)";
        assert_eq!(chain(&error).to_string(), expected);
    }
}
