//! Two hosts, if the runner says so: sockets of clients are made in this process's network namespace, those of servers in another
//! one. Otherwise all are made here, and connections go over loopback.
//!
//! A socket stays in the namespace in which it was made. So only the thread that makes a server's socket enters the other namespace,
//! for that one call, and a process may have both ends of a connection.

use std::ffi::{CString, OsString};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use sidestep_testkit::hairpin;

use crate::sys::errno::outcome;

/// Names the two namespaces' files, the clients' first. Not among the library's variables: programs without the library have it, too.
pub const VARIABLE: &str = "POSIX_HOSTS";
/// Names the sides whose connections the stack carries.
pub const STACKS: &str = "POSIX_STACKS";

/// The side of a connection decides which stream goes out and which comes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It calls connect(2).
    Client,
    /// It calls accept(2).
    Server,
}

struct Hosts {
    clients: CString,
    servers: CString,
}

fn hosts() -> Option<&'static Hosts> {
    static HOSTS: OnceLock<Option<Hosts>> = OnceLock::new();
    let path = |text: &str| CString::new(OsString::from(text).into_vec()).expect("no NUL in a path");
    HOSTS
        .get_or_init(|| {
            let value = std::env::var(VARIABLE).ok()?;
            let (clients, servers) = value.split_once(' ').expect("two paths");
            Some(Hosts { clients: path(clients), servers: path(servers) })
        })
        .as_ref()
}

/// Whether clients and servers are on two hosts.
pub fn are_two() -> bool {
    hosts().is_some()
}

/// The addresses of a side.
pub fn addresses(side: Side) -> (Ipv4Addr, Ipv6Addr) {
    match side {
        _ if hosts().is_none() => (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
        Side::Client => hairpin::CLIENT,
        Side::Server => hairpin::SERVER,
    }
}

/// A further address of clients.
pub fn other_address_of_clients() -> Ipv4Addr {
    if hosts().is_some() { hairpin::CLIENTS_OTHER } else { Ipv4Addr::new(127, 0, 0, 77) }
}

/// Makes a socket on the servers' host.
pub fn on_servers<T>(make: impl FnOnce() -> T) -> T {
    let Some(hosts) = hosts() else { return make() };
    enter(&hosts.servers);
    let made = make();
    enter(&hosts.clients);
    made
}

/// Whether the stack carries connections at the side that `of` names, if this program has the library.
pub fn is_stacks(of: impl FnOnce() -> Option<Side>) -> bool {
    let Ok(sides) = std::env::var(STACKS) else { return false };
    std::env::var_os("LD_PRELOAD").is_some()
        && of().is_some_and(|side| sides.split(' ').any(|name| name == self::name(side)))
}

/// Whether the stack carries connections at some side.
pub fn has_stack() -> bool {
    std::env::var(STACKS).is_ok_and(|sides| !sides.is_empty())
}

/// As in [`STACKS`].
pub fn name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

/// Moves this thread. The socket that is made next gets the lowest free number, as without hosts.
fn enter(namespace: &CString) {
    // SAFETY: a terminated path; then plain numbers.
    unsafe {
        let file =
            outcome(libc::open(namespace.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)).expect("the namespace's file");
        outcome(libc::setns(file as i32, libc::CLONE_NEWNET)).expect("setns");
        libc::close(file as i32);
    }
}
