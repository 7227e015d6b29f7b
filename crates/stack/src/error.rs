//! Why the worker ends.

use rustix::io;

/// Why the worker ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call that cannot fail has failed.
    #[error("cannot {doing}")]
    Call {
        /// What was to be done.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Errno,
    },
    /// The broker has hung up.
    #[error("the broker has ended")]
    BrokerGone,
    /// Without it a program would not be woken, or could not be served, or its connection would not go back.
    #[error("a descriptor that was sent to this process is lost: raise the limit of open files (RLIMIT_NOFILE)")]
    DescriptorLost,
    /// The keeper has ended.
    #[error("the keeper has ended")]
    KeeperGone(#[source] io::Errno),
    /// The keeper wants the worker to end. Not an error.
    #[error("the keeper ends the worker")]
    Over,
    /// The kernel does not tell of changes of routes.
    #[error("cannot follow routes and neighbours")]
    Watch(#[source] std::io::Error),
    /// No worker can be started.
    #[error("cannot start the worker")]
    Spawn(#[source] std::io::Error),
    /// The broker does not accept the stack.
    #[error("the broker speaks version {0} of the protocol; use the programs of one release")]
    Rejected(u64),
    /// Somebody else has done that.
    #[error("the device to which frames of taken connections are diverted was set down or removed")]
    InletGone,
    /// The device fails.
    #[error(transparent)]
    Device(#[from] sidestep_device::Error),
}

/// Makes an error of a failed call.
pub(crate) fn failed(doing: &'static str) -> impl Fn(io::Errno) -> Error {
    move |source| Error::Call { doing, source }
}
