//! Capabilities that a thread has, but does not use all the time.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// This thread, and those that it starts, no longer act with these capabilities; each can [`raise`] them again. No program that
/// they execute inherits them.
pub fn lower(which: CapabilitySet) -> Result<(), Errno> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: effective - which, permitted, inheritable: inheritable - which })
}

/// This thread acts with these capabilities from now on, as far as it may.
pub fn raise(which: CapabilitySet) -> Result<(), Errno> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: effective | (which & permitted), permitted, inheritable })
}

/// Makes a call that was refused without these capabilities with them, as far as this thread may; it has none more afterwards.
pub fn with<T>(which: CapabilitySet, call: impl FnOnce() -> T) -> Result<T, Errno> {
    let before = capabilities(None)?;
    raise(which)?;
    let answer = call();
    set_capabilities(None, before)?;
    Ok(answer)
}

/// Sends descriptors although too many of this user's are in flight, whoever sent them, as far as this thread may. A broker in a
/// container shares its uid with root's containers, and has the capability for that, though lowered.
pub fn past_too_many_in_flight(mut send: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    match send() {
        Err(Errno::TOOMANYREFS) => with(CapabilitySet::SYS_ADMIN, send)?,
        answer => answer,
    }
}
