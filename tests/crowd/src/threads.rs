//! Threads for each direction of a connection, whose calls wait.

use std::thread;

use libc::MSG_NOSIGNAL;
use sidestep_posix::rng::Rng;
use sidestep_posix::sys::{Fd, fds, io, net};

use crate::content::Content;
use crate::note::{self, Note};
use crate::plan::Plan;
use crate::side::Side;
use crate::wait::{Waiter, Way};

pub fn work(mut side: Side, before: Option<Way>, limit: Option<i64>) {
    let fd = side.fd();
    fds::set_nonblocking(fd, false);
    if let Some(ms) = limit {
        net::set_timeout(fd, libc::SO_RCVTIMEO, ms);
        net::set_timeout(fd, libc::SO_SNDTIMEO, ms);
    }
    let pauses = side.plan.pauses;
    thread::scope(|scope| {
        let Side { sender, receiver, plan, .. } = &mut side;
        scope.spawn(move || {
            let note = Note::new(format!("writer of connection {}, client {}", plan.connection, plan.is_client));
            match plan.content[0] {
                Content::Bytes => sender.all(pauses),
                Content::Records { threads, size } => records(fd, plan, threads, size),
            }
            if plan.shuts {
                note::step("shuts down", "");
                net::shutdown(fd, libc::SHUT_WR).expect("shutdown");
            }
            note.ended();
        });
        receiver.all(before.map(Waiter::new), pauses);
        note::step("waits for its writers", "");
    });
    side.close();
}

/// Each call has a record as a whole, and so must what arrives.
fn records(fd: Fd, plan: &Plan, threads: u64, size: u64) {
    let each = plan.sends / (threads * size);
    thread::scope(|scope| {
        for number in 0..threads {
            scope.spawn(move || {
                let note =
                    Note::new(format!("writer {number} of connection {}, client {}", plan.connection, plan.is_client));
                let mut rng = Rng::new(plan.key ^ (6 + number));
                for index in 0..each {
                    let record = plan.out().record(number, index, size);
                    note::step("sends a record", "");
                    let sent = match rng.below(3) {
                        0 => io::write(fd, &record),
                        1 => io::send(fd, &record, MSG_NOSIGNAL),
                        _ => io::sendmsg(fd, &record, MSG_NOSIGNAL),
                    };
                    assert_eq!(sent, Ok(record.len()), "record {index} of writer {number}");
                    note.sent(record.len());
                    rng.pause();
                }
                note.ended();
            });
        }
    });
}
