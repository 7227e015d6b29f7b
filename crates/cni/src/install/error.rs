//! What can go wrong with an installation.

use crate::config::VERSIONS;
use std::io;
use std::path::PathBuf;

/// The variants are described by their messages.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("{}: cannot list it", .0.display())]
    List(PathBuf, #[source] io::Error),
    #[error("{}: cannot read it", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("{}: cannot write it", .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("{}: cannot remove it", .0.display())]
    Remove(PathBuf, #[source] io::Error),
    #[error("{}: cannot rename it", .0.display())]
    Rename(PathBuf, #[source] io::Error),
    #[error("this program's own file cannot be read")]
    Program(#[source] io::Error),
    #[error("{}: no network configuration is there: install the cluster's network first, or use --watch", .0.display())]
    NoConfiguration(PathBuf),
    #[error(
        "{}: its cniVersion is {version:?}, and sidestep-cni speaks {}: have the cluster's network write one of these",
        path.display(),
        VERSIONS.join(", ")
    )]
    Version { path: PathBuf, version: String },
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
}
