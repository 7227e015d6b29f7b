//! Connections of a network namespace that its proxy has not accepted yet.

use crate::error::{Doing, Result};
use crate::netns;
use crate::proc_net::{self, Tcp};
use std::path::Path;

/// Whether there is one. `ports`: the proxy's.
pub fn is_any(namespace: &Path, ports: [u16; 2]) -> Result<bool> {
    let look = || Ok::<_, std::io::Error>(proc_net::tcp()?.lines().any(|socket| is_under_way(&socket, ports)));
    netns::inside(namespace, look).at("enter", namespace)?.at("look at the connections of", namespace)
}

/// True for SYN_SENT to these ports, SYN_RECV, and sockets that wait for accept(2), which have no inode.
fn is_under_way(socket: &Tcp, ports: [u16; 2]) -> bool {
    match socket.state {
        proc_net::SYN_SENT => socket.remote_port().is_some_and(|port| ports.contains(&port)),
        proc_net::SYN_RECV => true,
        proc_net::ESTABLISHED | proc_net::CLOSE_WAIT => socket.inode == "0",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(remote: &str, state: &str, inode: &str) -> bool {
        let socket = Tcp { local: "0100007F:9C40", remote, state, inode };
        is_under_way(&socket, [15001, 15006])
    }

    #[test]
    fn what_waits_is_told_from_what_is_there() {
        assert!(is_found("0100007F:3A99", "02", "71"), "dialled, at 15001");
        assert!(!is_found("0200007F:0050", "02", "71"), "dialled elsewhere");
        assert!(is_found("0200007F:0050", "03", "0"), "half open");
        assert!(is_found("0200007F:0050", "01", "0") && is_found("0200007F:0050", "08", "0"), "not accepted");
        assert!(!is_found("0100007F:3A99", "01", "71") && !is_found("0100007F:3A99", "0A", "71"));
        assert!(!is_found("0100007F:3A99", "06", "0") && !is_found("0100007F:3A99", "04", "0"), "ended");
    }
}
