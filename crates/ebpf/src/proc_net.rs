//! TCP sockets of a network namespace, as proc_net(5) lists them.

use std::io;

// State numbers of the kernel.
pub const ESTABLISHED: &str = "01";
pub const SYN_SENT: &str = "02";
pub const SYN_RECV: &str = "03";
pub const TIME_WAIT: &str = "06";
pub const CLOSE_WAIT: &str = "08";
pub const LISTEN: &str = "0A";

/// The text of the files for both families.
pub struct Text(String);

/// One socket. Addresses are native-endian words in hexadecimal, followed by a colon and the port.
pub struct Tcp<'a> {
    pub local: &'a str,
    pub remote: &'a str,
    pub state: &'a str,
    /// Inode of the socket's file; 0: it has no file.
    pub inode: &'a str,
}

/// The sockets of the calling thread's namespace.
pub fn tcp() -> io::Result<Text> {
    let mut text = String::new();
    for name in ["tcp", "tcp6"] {
        match std::fs::read_to_string(format!("/proc/thread-self/net/{name}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // no IPv6
            sockets => text.push_str(&sockets?),
        }
    }
    Ok(Text(text))
}

impl Text {
    pub fn lines(&self) -> impl Iterator<Item = Tcp<'_>> {
        self.0.lines().filter_map(Tcp::of)
    }
}

impl Tcp<'_> {
    /// The socket in this line; None for the header, whose first word has no colon.
    pub fn of(line: &str) -> Option<Tcp<'_>> {
        let mut words = line.split_ascii_whitespace();
        words.next().filter(|number| number.ends_with(':'))?;
        let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
        Some(Tcp { local, remote, state, inode: words.nth(5)? })
    }

    pub fn remote_port(&self) -> Option<u16> {
        u16::from_str_radix(self.remote.rsplit(':').next()?, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn lines_are_understood() {
        let line = "  12: 0100007F:3A99 0200007F:C350 08 00000000:00000001 00:00000000 00000000  1337        0 71 1 0 20 4 30 10 -1";
        let socket = Tcp::of(line).unwrap();
        assert_eq!((socket.local, socket.remote, socket.state), ("0100007F:3A99", "0200007F:C350", CLOSE_WAIT));
        assert_eq!((socket.inode, socket.remote_port()), ("71", Some(50000)));
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert!(Tcp::of(head).is_none() && Tcp::of("").is_none() && Tcp::of("0: 1 2 3").is_none());
    }

    /// Sockets that are not accepted yet have no file.
    #[test]
    fn own_connections_are_found_in_both_families() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).unwrap();
            let at = listener.local_addr().unwrap();
            let stream = TcpStream::connect(at).unwrap();
            let inode = |state: &str, port: u16| {
                let text = tcp().unwrap();
                let its = text.lines().find(|socket| socket.state == state && socket.remote_port() == Some(port));
                its.map(|socket| socket.inode.to_string())
            };
            let own = rustix::fs::fstat(stream.as_fd()).unwrap().st_ino.to_string();
            assert_eq!(inode(ESTABLISHED, at.port()), Some(own), "{at}");
            assert_eq!(inode(ESTABLISHED, stream.local_addr().unwrap().port()).as_deref(), Some("0"), "{at}");
            let _accepted = listener.accept().unwrap();
            assert_ne!(inode(ESTABLISHED, stream.local_addr().unwrap().port()).as_deref(), Some("0"), "{at}");
        }
    }
}
