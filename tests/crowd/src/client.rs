//! A client of a run: all its connections at once.

use std::thread;

use libc::{MSG_WAITALL, SOCK_CLOEXEC};
use sidestep_posix::sys::io;
use sidestep_posix::sys::net::{self, Addr, Family};

use crate::plan::{Crew, Run};
use crate::server::{GREETING, work};
use crate::shared::Shared;
use crate::side::{self, Side};

pub fn run(run: &Run, number: u32, port: u16) {
    let connections = run.connections(number);
    match run.crew(Some(number)) {
        Crew::Alone => thread::scope(|scope| {
            for connection in connections {
                scope.spawn(move || work(connect(run, connection, port)));
            }
        }),
        Crew::Shared { trigger, threads, nested } if !connections.is_empty() => {
            let shared = Shared::new(trigger, nested, connections.len());
            connections.into_iter().for_each(|connection| shared.add(connect(run, connection, port)));
            shared.run(threads);
        }
        Crew::Shared { .. } => {}
    }
}

fn connect(run: &Run, connection: u32, port: u16) -> Side {
    let (plan, fd) = (run.plan(connection, true), net::socket(Family::V4, SOCK_CLOEXEC));
    side::set_buffers(fd, &plan);
    net::connect(fd, &Addr::server(Family::V4, port)).expect("connect");
    assert_eq!(io::write(fd, &connection.to_le_bytes()), Ok(4), "saying which connection it is");
    if plan.is_greeted {
        let mut greeting = [0; GREETING.len()];
        assert_eq!((io::recv(fd, &mut greeting, MSG_WAITALL), &greeting[..]), (Ok(GREETING.len()), GREETING));
    }
    Side::new(fd, plan)
}
