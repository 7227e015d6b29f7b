//! Rights that a program gets from its file. The loader ignores LD_PRELOAD in a program that has more rights than its user.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// What gives a program more rights than its user has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of chmod(1) and setcap(8).
pub enum ExtraRights {
    Setuid,
    Setgid,
    Capabilities,
}

impl fmt::Display for ExtraRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExtraRights::Setuid => "setuid",
            ExtraRights::Setgid => "setgid",
            ExtraRights::Capabilities => "file capabilities (setcap)",
        })
    }
}

/// The rights that the file gives, if any.
pub fn extra_rights(file: &File) -> io::Result<Option<ExtraRights>> {
    let mode = file.metadata()?.mode();
    if mode & 0o4000 != 0 {
        return Ok(Some(ExtraRights::Setuid));
    }
    // The setgid bit without group execution is an old marker for mandatory locking.
    if mode & 0o2010 == 0o2010 {
        return Ok(Some(ExtraRights::Setgid));
    }
    let has_capabilities = rustix::fs::fgetxattr(file, c"security.capability", &mut [0u8; 64]).is_ok_and(|len| len > 0);
    Ok(has_capabilities.then_some(ExtraRights::Capabilities))
}
