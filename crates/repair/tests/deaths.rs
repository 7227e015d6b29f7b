//! A process dies before each call of a take, of an emptying and of a give-back, and another one goes on: no later call of the
//! first one has an effect.

use crate::common;

use crate::common::failing::run;
use crate::common::*;
use libc::{IPPROTO_TCP, SOL_SOCKET};
use sidestep_repair::{
    Buffers, Queues, Taken, empty, finish, give_back, give_back_again, give_back_prepared, is_parked, prepare, take,
    take_prepared, undo,
};
use std::net::TcpStream;

struct Connection {
    wire: Wire,
    near: TcpStream,
    far: TcpStream,
    to_near: Expected,
    to_far: Expected,
}

/// Bytes in both queues, of which the send queue holds more than the program wants by now, and options that must be restored. The
/// gate is closed.
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
    raw::set_int(&near, SOL_SOCKET, libc::SO_SNDBUF, 5000);
    Connection { wire, near, far, to_near, to_far }
}

impl Connection {
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
        sidestep_repair::examine(&self.near).expect("no filter is left, and nothing else");
        no_error(&self.near);
    }

    fn finish(mut self) -> Wire {
        self.wire.open();
        common::finish(self.near, self.far, &mut self.to_far, &mut self.to_near, 1000);
        self.wire
    }
}

fn queues(taken: &Taken) -> Queues<'_> {
    Queues::new(&taken.unread, &taken.unacknowledged)
}

#[test]
fn a_take_that_was_cut_off_is_undone() {
    let connection = connection(Wire::shaped(&USUAL));
    let saved = prepare(&connection.near).expect("prepare");
    let mut deaths = 0;
    loop {
        let (outcome, calls) = run(|call| call >= deaths, || take_prepared(&connection.near, saved));
        undo(&connection.near, &saved).expect("undo");
        connection.check();
        if outcome.is_ok() {
            assert_eq!(calls, deaths);
            break;
        }
        deaths += 1;
    }
    println!("{deaths} deaths");
    assert!(deaths > 30, "only {deaths} calls");
    connection.finish();
}

#[test]
fn an_emptying_that_was_cut_off_does_not_hinder_the_give_back() {
    let mut wire = Wire::shaped(&USUAL);
    for deaths in 0.. {
        let connection = connection(wire);
        let taken = take(&connection.near).expect("take");
        let (outcome, _) = run(|call| call >= deaths, || empty(&connection.near, &taken.state));
        give_back(&connection.near, &taken.state, &queues(&taken)).expect("give back");
        connection.check();
        wire = connection.finish();
        if outcome.is_ok() {
            assert!(deaths > 10, "only {deaths} calls");
            return;
        }
    }
}

#[test]
fn a_give_back_that_was_cut_off_is_finished() {
    let mut wire = Wire::shaped(&USUAL);
    let [mut parked, mut live, mut grown] = [0; 3];
    for deaths in 0.. {
        let connection = connection(wire);
        let (near, taken) = (&connection.near, take(&connection.near).expect("take"));
        let buffers = Buffers::read(near).expect("sizes");
        let (outcome, _) =
            run(|call| call >= deaths, || give_back_prepared(near, &taken.state, &queues(&taken), buffers));
        grown += u32::from(Buffers::read(near).expect("sizes") != buffers);
        if is_parked(near).expect("is it parked") {
            parked += 1;
            give_back_again(near, &taken.state, &queues(&taken), buffers).expect("give back");
        } else {
            live += 1;
            finish(near, &taken.state, &queues(&taken), buffers).expect("finish");
        }
        connection.check();
        assert_eq!(Buffers::read(near).expect("sizes"), buffers);
        wire = connection.finish();
        if outcome.is_ok() {
            break;
        }
    }
    println!("{parked} deaths left the socket parked, {live} live, {grown} with buffers that had grown");
    assert!(parked > 15 && live > 4 && grown > 2, "{parked} parked, {live} live, {grown} grown");
}
