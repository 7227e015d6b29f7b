//! The machine: the kernel's features, the parts of Sidestep, and whether they work together.

use super::{Check, limits, selftest};
use crate::locate;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use sidestep_broker::client::{ClientError, Operator};
use sidestep_broker::diag::Diag;
use sidestep_broker::listen::{Address, listen};
use sidestep_broker::proof;
use sidestep_error::chain;
use std::error::Error;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

pub fn checks(broker: &Address) -> Vec<Check> {
    let mut checks = vec![
        switch(),
        architecture(),
        memory(),
        abstract_sockets(),
        doorbells(),
        identity(),
        proofs(),
        limits::descriptors(),
        limits::address_space(),
        limits::locked_memory(),
        user(),
        library(),
        daemon(broker),
    ];
    // If one of these failed, the trial would only report the same problem.
    if checks.iter().all(|check| check.verdict != super::Verdict::WillNotWork) {
        checks.push(selftest::check());
    }
    checks
}

fn switch() -> Check {
    let name = sidestep_abi::env::SWITCH;
    match std::env::var(name) {
        Ok(value) if value == "off" => {
            Check::fails("switch", format!("{name}=off is set"), format!("unset {name}: it switches Sidestep off"))
        }
        _ => Check::ok("switch", format!("{name} is not off")),
    }
}

fn architecture() -> Check {
    match std::env::consts::ARCH {
        "x86_64" => Check::ok("processor", "x86_64"),
        other => Check::fails("processor", other, "only x86_64 is supported so far"),
    }
}

fn memory() -> Check {
    let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    let sealed = rustix::fs::memfd_create("sidestep-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .and_then(|fd| rustix::fs::ftruncate(&fd, 4096).map(|()| fd))
        .and_then(|fd| rustix::fs::fcntl_add_seals(&fd, seals).map(|()| fd))
        .and_then(|fd| rustix::fs::fcntl_get_seals(&fd));
    match sealed {
        Ok(set) if set.contains(seals) => Check::ok("memfd", "memory can be shared and sealed"),
        Ok(set) => Check::fails("memfd", format!("sealing is incomplete: {set:?}"), "use Linux 5.14 or later"),
        Err(e) => Check::fails(
            "memfd",
            format!("memfd_create with sealing: {}", std::io::Error::from(e)),
            "a seccomp filter or an old kernel forbids it; allow memfd_create, ftruncate and fcntl",
        ),
    }
}

fn abstract_sockets() -> Check {
    let address = Address::Abstract(format!("sidestep-doctor-{}", std::process::id()));
    let tried = || -> Result<OwnedFd, Box<dyn Error>> {
        let _listener = listen(&address, false)?;
        Ok(address.connect().map_err(io::Error::from)?)
    };
    match tried() {
        Ok(_) => Check::ok("control sockets", "abstract Unix sockets work"),
        Err(error) => Check::fails(
            "control sockets",
            chain(&*error).to_string(),
            format!("set {} to a path that programs and broker can reach", sidestep_abi::env::BROKER),
        ),
    }
}

fn doorbells() -> Check {
    match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
        Ok(_) => Check::ok("eventfd", "doorbells work"),
        Err(e) => {
            Check::fails("eventfd", std::io::Error::from(e).to_string(), "a seccomp filter forbids it; allow eventfd2")
        }
    }
}

/// The socket facts that the broker needs, tried on a connection of this process.
fn identity() -> Check {
    let connection = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        // Accepts before the listener is closed, which would reset the connection.
        listener.accept().map(|accepted| (stream, accepted))
    };
    match connection().map(|(stream, _accepted)| proof::identify(&stream)) {
        Ok(Ok(_)) => Check::ok("socket identity", "sockets tell cookie, network namespace and addresses"),
        Ok(Err(why)) => Check::fails(
            "socket identity",
            format!("a TCP socket does not tell who it is ({why:?})"),
            "use Linux 5.14 or later (SO_NETNS_COOKIE)",
        ),
        Err(e) => {
            Check::fails("socket identity", format!("no TCP on 127.0.0.1: {e}"), "bring the loopback interface up")
        }
    }
}

/// Whether the broker can look up a socket that it does not hold.
fn proofs() -> Check {
    match Diag::open() {
        Ok(_) => Check::ok("sock_diag", "the kernel tells which TCP sockets are alive"),
        Err(e) => Check::fails(
            "sock_diag",
            format!("NETLINK_SOCK_DIAG for TCP: {}", std::io::Error::from(e)),
            "load the module tcp_diag; a seccomp filter may also forbid netlink sockets",
        ),
    }
}

fn user() -> Check {
    let (real, effective) = (rustix::process::getuid().as_raw(), rustix::process::geteuid().as_raw());
    if real != effective {
        let found = format!("real user {real}, effective user {effective}");
        return Check::fails(
            "user",
            found,
            "the loader ignores LD_PRELOAD for a program with borrowed rights; log in as the user",
        );
    }
    Check::ok(
        "user",
        format!("{effective}: connections between programs of this user, and those that the broker's allow-list adds"),
    )
}

fn library() -> Check {
    match locate::library() {
        Ok(path) => Check::ok("library", path.display().to_string()),
        Err(error) => {
            let found = chain(&error).to_string();
            Check::fails(
                "library",
                found,
                "install it there, build it (cargo build --release), or set SIDESTEP_LIBRARY",
            )
        }
    }
}

fn daemon(address: &Address) -> Check {
    match Operator::connect(address).and_then(|operator| operator.status()) {
        Ok(status) => {
            Check::ok("broker", format!("{address}: pid {}, protocol {}, as ours", status.pid, status.version))
        }
        Err(ClientError::NotAllowed(uid)) => Check::ok("broker", format!("{address}: run by user {uid}")),
        Err(ClientError::NotRunning(_)) => match locate::daemon() {
            Ok(path) => Check::ok("broker", format!("none at {address}; `sidestep run` starts {}", path.display())),
            Err(error) => {
                let found = chain(&error).to_string();
                Check::fails("broker", found, "install sidestepd beside sidestep, or start one by hand")
            }
        },
        Err(e @ ClientError::OtherUser(..)) => Check::fails(
            "broker",
            e.to_string(),
            format!("somebody took the name; set {} to another address", sidestep_abi::env::BROKER),
        ),
        Err(e) => Check::fails("broker", chain(&e).to_string(), "stop what listens there, or use another address"),
    }
}
