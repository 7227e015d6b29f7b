//! The server of a run: as many connections as its plan has, then it ends.

use std::sync::OnceLock;
use std::thread;

use libc::{MSG_WAITALL, SOCK_CLOEXEC};
use sidestep_posix::sys::errno::{EAGAIN, EINTR};
use sidestep_posix::sys::net::{self, Addr, Family};
use sidestep_posix::sys::{Fd, fds, io};

use crate::plan::{Crew, Run, Shape};
use crate::shared::Shared;
use crate::side::{self, Side};
use crate::{driven, threads};

/// What both functions that accept know.
static RUN: OnceLock<Run> = OnceLock::new();

pub fn run(run: &Run) {
    let run = RUN.get_or_init(|| run.clone());
    let listener = net::server_socket(Family::V4, SOCK_CLOEXEC);
    net::bind(listener, &Addr::server(Family::V4, 0)).expect("bind");
    net::listen(listener, 512).expect("listen");
    println!("{}", net::getsockname(listener).port());
    let all = run.all().len();
    match run.crew(None) {
        Crew::Alone => thread::scope(|scope| {
            for _ in 0..all {
                let side = loop {
                    if let Some(side) = accept(listener) {
                        break side;
                    }
                };
                scope.spawn(move || work(side));
            }
        }),
        Crew::Shared { trigger, threads, nested } => {
            let mut shared = Shared::new(trigger, nested, all);
            shared.listens(listener, accept);
            shared.run(threads);
        }
    }
}

/// The end of one connection, in a thread of its own.
pub fn work(side: Side) {
    side.note.work_for();
    match side.plan.shape {
        Shape::Driven(way) => driven::work(side, way),
        Shape::Threads { before, limit } => threads::work(side, before, limit),
        Shape::Member => unreachable!("a member of a shared set has no thread of its own"),
    }
}

/// A greeting precedes the stream.
pub const GREETING: &[u8] = b"hello";

/// None: somebody else was faster.
fn accept(listener: Fd) -> Option<Side> {
    let fd = match net::accept4(listener, SOCK_CLOEXEC) {
        Ok(fd) => fd as Fd,
        Err(EAGAIN | EINTR) => return None,
        Err(e) => panic!("accept: {e:?}"),
    };
    fds::set_nonblocking(fd, false);
    let mut number = [0; 4];
    assert_eq!(io::recv(fd, &mut number, MSG_WAITALL), Ok(4), "a client says which connection it is");
    let plan = RUN.get().expect("it is set first").plan(u32::from_le_bytes(number), false);
    side::set_buffers(fd, &plan);
    if plan.is_greeted {
        assert_eq!(io::write(fd, GREETING), Ok(GREETING.len()), "greeting a client");
    }
    Some(Side::new(fd, plan))
}
