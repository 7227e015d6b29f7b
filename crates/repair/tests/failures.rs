//! Each call of a take and of a give-back fails once.

use crate::common::failing::{ERROR, run};
use crate::common::*;
use libc::{IPPROTO_TCP, SOL_SOCKET};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use sidestep_repair::{GiveBackError, Queues, TakeError, Taken, give_back, take, undo};
use std::net::TcpStream;

struct Connection {
    wire: Wire,
    near: TcpStream,
    far: TcpStream,
    to_near: Expected,
    to_far: Expected,
}

/// Bytes in both queues, and options that must be restored. The gate is closed.
fn connection(wire: Wire) -> Connection {
    let (near, far) = wire.connect(&USUAL);
    near.set_nonblocking(true).expect("O_NONBLOCK");
    far.set_nonblocking(true).expect("O_NONBLOCK");
    raw::set_int(&near, SOL_SOCKET, libc::SO_REUSEADDR, 1);
    raw::set_int(&near, SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    let (mut to_near, mut to_far) = (Expected::new(7), Expected::new(8));
    assert_eq!(to_near.write(&far, 3001), 3001);
    until("the bytes arrive", || raw::unread(&near) == 3001);
    wire.close();
    to_far.write_until_full(&near);
    Connection { wire, near, far, to_near, to_far }
}

impl Connection {
    /// As the program has made it, and not in repair mode.
    fn check(&self) {
        for (level, number, value) in [
            (SOL_SOCKET, libc::SO_REUSEADDR, 1),
            (SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (IPPROTO_TCP, libc::TCP_REPAIR, 0),
            (SOL_SOCKET, libc::SO_OOBINLINE, 0),
        ] {
            assert_eq!(raw::get_int(&self.near, level, number), value, "option {level} {number}");
        }
        assert_eq!(raw::unread(&self.near), 3001);
        no_error(&self.near);
    }

    fn finish(mut self) -> Wire {
        self.wire.open();
        finish(self.near, self.far, &mut self.to_far, &mut self.to_near, 1000);
        self.wire
    }
}

fn queues(taken: &Taken) -> Queues<'_> {
    Queues::new(&taken.unread, &taken.unacknowledged)
}

#[test]
fn after_each_failure_of_a_take_the_connection_goes_on() {
    let connection = connection(Wire::shaped(&USUAL));
    let mut failing = 0;
    let taken = loop {
        let (outcome, calls) = run(|call| call == failing, || take(&connection.near));
        match outcome {
            Ok(taken) => {
                assert_eq!(calls, failing, "a failure was not reported");
                break taken;
            }
            Err(TakeError::Stuck { .. }) => panic!("call {failing}: stuck"),
            Err(_) => assert!(calls > failing, "failed by itself"),
        }
        connection.check();
        failing += 1;
    };
    println!("{failing} calls of a take failed");
    assert!(failing > 40, "only {failing} calls");
    give_back(&connection.near, &taken.state, &queues(&taken)).expect("give back");
    connection.check();
    connection.finish();
}

#[test]
fn a_take_that_cannot_be_undone_says_so() {
    let connection = connection(Wire::shaped(&USUAL));
    let (_, calls) = run(|_| false, || take(&connection.near).map(|taken| undo(&connection.near, &taken.state.saved)));
    // The last calls of `take`, and all of the first undoing.
    let (outcome, _) = run(|call| call >= calls - 10, || take(&connection.near));
    let Err(TakeError::Stuck { source, saved }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(source.source, Errno::from_raw_os_error(ERROR));
    assert_eq!(raw::get_int(&connection.near, IPPROTO_TCP, libc::TCP_REPAIR), 1);
    undo(&connection.near, &saved).expect("undo");
    connection.check();
    connection.finish();
}

#[test]
fn after_each_failure_of_a_give_back_it_can_be_tried_again() {
    let mut wire = Wire::shaped(&USUAL);
    let [mut parked, mut detached, mut live] = [0; 3];
    for failing in 0.. {
        let connection = connection(wire);
        let taken = take(&connection.near).expect("take");
        let near = &connection.near;
        let (outcome, calls) = run(|call| call == failing, || give_back(near, &taken.state, &queues(&taken)));
        match outcome {
            Ok(()) => {
                assert_eq!(calls, failing, "a failure was not reported");
                connection.check();
                connection.finish();
                break;
            }
            Err(GiveBackError::Impossible(why)) => panic!("{why}"),
            Err(GiveBackError::Parked(error)) => {
                assert_eq!(error.source, Errno::from_raw_os_error(ERROR));
                parked += 1;
                give_back(near, &taken.state, &queues(&taken)).expect("try again");
                connection.check();
            }
            Err(GiveBackError::Detached(error)) => {
                assert_eq!(error.source, Errno::from_raw_os_error(ERROR));
                detached += 1;
                give_back(near, &taken.state, &queues(&taken)).expect("try again");
                connection.check();
            }
            Err(GiveBackError::Live { unqueued, source }) => {
                assert_eq!(source.source, Errno::from_raw_os_error(ERROR));
                live += 1;
                let rest = &taken.unacknowledged[taken.unacknowledged.len() - unqueued..];
                assert_eq!(send(near, rest, SendFlags::NOSIGNAL), Ok(unqueued));
            }
        }
        wire = connection.finish();
    }
    println!("{parked} failures left the socket parked, {detached} detached, {live} live");
    assert!(parked >= 2 && detached >= 15 && live >= 4);
}
