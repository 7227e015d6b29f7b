//! Users and groups by name, and the user at the other end of a socket.

use crate::raw::sock::Sender;

/// The system's databases of users cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.desc())]
pub struct LookUpError(nix::errno::Errno);

/// The number of the user with this name, from the system's databases (getpwnam(3)).
pub fn by_name(name: &str) -> Result<Option<u32>, LookUpError> {
    let found = nix::unistd::User::from_name(name).map_err(LookUpError)?;
    Ok(found.map(|user| user.uid.as_raw()))
}

/// The number of the group with this name, from the system's databases (getgrnam(3)).
pub fn group_by_name(name: &str) -> Result<Option<u32>, LookUpError> {
    let found = nix::unistd::Group::from_name(name).map_err(LookUpError)?;
    Ok(found.map(|group| group.gid.as_raw()))
}

/// The credentials of the other end of a connected Unix socket.
pub fn peer_of(socket: &impl rustix::fd::AsFd) -> std::io::Result<Sender> {
    crate::raw::sock::peer(socket.as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_have_names() {
        assert_eq!((by_name("root"), group_by_name("root")), (Ok(Some(0)), Ok(Some(0))));
        assert_eq!((by_name("no such user"), group_by_name("no such group")), (Ok(None), Ok(None)));
        assert!(by_name("\0").is_err() || by_name("\0") == Ok(None));
    }
}
