//! Why a container is left as it is, or why the library has no effect in it. The names are stable: metrics and events have them.

/// Why a container of an enrolled pod does not use rings, or may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// An annotation of the pod says so.
    OptedOut,
    /// The pod is in the node's network namespace.
    HostNetwork,
    /// No version of the library is installed on the node.
    NoLibrary,
    /// The directory of the broker's socket is not there.
    NoBroker,
    /// The container has a mount where ours would be, or one in which no directory can be made.
    MountConflict,
    /// The container sets `SIDESTEP_BROKER`, preloads the library, or has an LD_PRELOAD that cannot be extended.
    OwnSettings,
    /// The container was created before the pod was enrolled, or while the plugin was away.
    CreatedBefore,
    /// The runtime's request cannot be read.
    Undecodable,
    /// The pod's namespace is under Pod Security `baseline` or `restricted`, which permits no volume of the node.
    PodSecurity,
    /// The pod has users of its own, and the node may not be able to map them in its volumes.
    UserNamespace,
    /// The pod is not for Linux.
    OtherSystem,
    /// The pod may run on a node that does not have the library.
    OtherNodes,
    /// Nobody knows what LD_PRELOAD the container will have.
    UnknownPreload,
    /// The entrypoint has no loader.
    Static,
    /// The entrypoint's file gives rights: the loader ignores LD_PRELOAD.
    ExtraRights,
    /// The entrypoint's loader is neither glibc's nor musl's.
    UnknownLibc,
    /// The entrypoint is built for another machine.
    OtherMachine,
    /// The entrypoint cannot be found, or read, or is no program.
    UnknownProgram,
    /// Too many entrypoints wait to be looked at.
    NotInspected,
}

impl Reason {
    /// All reasons, for tables.
    pub const ALL: [Reason; 19] = [
        Reason::OptedOut,
        Reason::HostNetwork,
        Reason::NoLibrary,
        Reason::NoBroker,
        Reason::MountConflict,
        Reason::OwnSettings,
        Reason::CreatedBefore,
        Reason::Undecodable,
        Reason::PodSecurity,
        Reason::UserNamespace,
        Reason::OtherSystem,
        Reason::OtherNodes,
        Reason::UnknownPreload,
        Reason::Static,
        Reason::ExtraRights,
        Reason::UnknownLibc,
        Reason::OtherMachine,
        Reason::UnknownProgram,
        Reason::NotInspected,
    ];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Reason::OptedOut => "opted-out",
            Reason::HostNetwork => "host-network",
            Reason::NoLibrary => "no-library",
            Reason::NoBroker => "no-broker",
            Reason::MountConflict => "mount-conflict",
            Reason::OwnSettings => "own-settings",
            Reason::CreatedBefore => "created-before",
            Reason::Undecodable => "undecodable",
            Reason::PodSecurity => "pod-security",
            Reason::UserNamespace => "user-namespace",
            Reason::OtherSystem => "other-system",
            Reason::OtherNodes => "other-nodes",
            Reason::UnknownPreload => "unknown-preload",
            Reason::Static => "static",
            Reason::ExtraRights => "extra-rights",
            Reason::UnknownLibc => "unknown-libc",
            Reason::OtherMachine => "other-machine",
            Reason::UnknownProgram => "unknown-program",
            Reason::NotInspected => "not-inspected",
        }
    }

    /// What it means, and what to do.
    pub fn sentence(self) -> &'static str {
        match self {
            Reason::OptedOut => "An annotation of the pod opts out",
            Reason::HostNetwork => "The pod uses the node's network, where addresses prove nothing of a pod",
            Reason::NoLibrary => "No version of the library is installed on the node: sidestep-nri install",
            Reason::NoBroker => "The directory of the broker's socket is not on the node: start the broker",
            Reason::MountConflict => "A mount of the container is where Sidestep's would be, or is read-only above it",
            Reason::OwnSettings => "The container has settings of Sidestep, or an LD_PRELOAD that cannot be extended",
            Reason::CreatedBefore => {
                "The container was created without the plugin, or before its pod was enrolled: restart the pod"
            }
            Reason::Undecodable => "The request cannot be read: use a runtime with NRI v1alpha1",
            Reason::PodSecurity => {
                "The namespace's Pod Security level permits no hostPath volume: use NRI, or the level privileged"
            }
            Reason::UserNamespace => {
                "The pod has users of its own (hostUsers: false), for which not every node can mount a directory: use NRI"
            }
            Reason::OtherSystem => "The pod is not for Linux",
            Reason::OtherNodes => {
                "The pod may run on a node that does not have the library: name nodes that do, by nodeSelector or affinity"
            }
            Reason::UnknownPreload => {
                "LD_PRELOAD may come from a ConfigMap, a Secret or a field, and cannot be extended: give the container a literal one, which may be empty"
            }
            Reason::Static => {
                "The entrypoint is static: nothing can be preloaded into it, but into programs that it starts"
            }
            Reason::ExtraRights => {
                "The entrypoint's file is setuid, setgid or has capabilities: its loader ignores LD_PRELOAD"
            }
            Reason::UnknownLibc => {
                "The entrypoint's C library is neither glibc nor musl: the library does nothing there"
            }
            Reason::OtherMachine => {
                "The entrypoint is not built for x86-64: its loader says so and ignores the library"
            }
            Reason::UnknownProgram => "The entrypoint could not be looked at",
            Reason::NotInspected => "Too many containers start at a time to look at their entrypoints",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_differ() {
        let names: HashSet<_> = Reason::ALL.into_iter().map(Reason::name).collect();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
