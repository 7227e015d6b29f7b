//! What a program does with its ring and its socket while the stack takes the connection, or gives it up.

use super::{Carried, NotCarried};
use crate::calls::close;
use crate::cause::Cause;
use crate::handover::restore;
use crate::handover::tests::common::failing::die_before;
use crate::handover::tests::common::raw;
use crate::handover::tests::{BEFORE, ProgramsEnd, SLOT, STACK, copy, in_rings, link, memory_of_a_link};
use crate::ledger::Ledger;
use crate::pace::Pace;
use crate::record::{Ends, Record, Stage};
use crate::subject::tests::over_ethernet;
use rustix::fd::AsFd;
use sidestep_broker::closing::Closing;
use sidestep_ring::slot::{self, Wish};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A connection of which each end has sent [`BEFORE`] bytes, and read the other's.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mut near = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
    let mut far = listener.accept().expect("the other end").0;
    let mut bytes = [0; BEFORE];
    near.write_all(&bytes).expect("they leave");
    far.read_exact(&mut bytes).expect("they arrive");
    far.write_all(&bytes).expect("they leave");
    near.read_exact(&mut bytes).expect("they arrive");
    (near, far)
}

/// Why the connection is not taken. `deed`: what the program does just after the stack has seen it in both rings.
fn refusal(deed: impl FnOnce(&mut ProgramsEnd)) -> Cause {
    refused(deed).0
}

/// The same, and both ends of the connection.
fn refused(deed: impl FnOnce(&mut ProgramsEnd)) -> (Cause, TcpStream, TcpStream) {
    let (near, far) = connected();
    let memory = memory_of_a_link();
    let (program, mut end) = in_rings(&memory, &near);
    deed(&mut end);
    let subject = over_ethernet(near.try_clone().expect("another descriptor"));
    let record = Record::new(Arc::new(Ledger::create(1).expect("a ledger")), 0);
    record.assign(&Ends { local: subject.local, remote: subject.remote });
    match Carried::take(program, record, &subject, Pace::new(8192), 0).map_err(|failed| *failed) {
        Err(NotCarried::Kernel(mut program, _, cause)) => {
            program.give_up();
            assert_eq!(slot::parked(end.link.slot(SLOT)) % 2, 0, "the program may use its socket");
            (cause, near, far)
        }
        Err(NotCarried::Emptied(..)) | Ok(_) => panic!("the connection is taken"),
    }
}

fn end_stretch(end: &mut ProgramsEnd) {
    end.tx.end(end.link.outgoing(SLOT)).expect("no violation");
}

/// A shutdown(2) on a parked socket would be forgotten with the next give-back, and copies would leave twice.
#[test]
fn a_program_that_has_looked_before_its_socket_is_parked_keeps_it() {
    assert!(matches!(refusal(|end| slot::wish(end.link.slot(SLOT), Wish::Slot)), Cause::Left));
    assert!(matches!(refusal(|end| slot::wish(end.link.slot(SLOT), Wish::Socket)), Cause::Wanted));
    assert!(matches!(refusal(end_stretch), Cause::LeftRings));
    let unsent = |end: &mut ProgramsEnd| {
        end.write(b"abc");
        end_stretch(end);
        assert!(end.tx.has_unsent());
    };
    assert!(matches!(refusal(unsent), Cause::LeftRings));
    let sent = |end: &mut ProgramsEnd| {
        unsent(end);
        end.tx.sent_unread(end.link.outgoing(SLOT), 3);
        assert!(!end.tx.has_unsent());
    };
    assert!(matches!(refusal(sent), Cause::LeftRings));
}

/// It has found its socket parked, and has made no call.
#[test]
fn a_shutdown_that_was_left_to_a_stack_which_takes_nothing_is_not_forgotten() {
    let (cause, _near, mut far) = refused(|end| {
        end_stretch(end);
        end.link.outgoing(SLOT).set_fin();
    });
    assert!(matches!(cause, Cause::LeftRings));
    far.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
    assert_eq!(far.read(&mut [0]).expect("the end comes"), 0);
}

#[test]
fn what_a_program_that_is_killed_has_left_in_its_ring_comes_before_the_end() {
    let (near, mut far) = connected();
    let memory = memory_of_a_link();
    let (mut program, mut end) = in_rings(&memory, &near);
    end.write(b"last words");
    program.give_up();
    let record = Record::new(Arc::new(Ledger::create(1).expect("a ledger")), 0);
    record.assign(&Ends { local: near.local_addr().expect("local"), remote: near.peer_addr().expect("remote") });
    close(&mut program, &record, near.into(), &mut Closing::new());
    assert_eq!(record.stage(), Stage::Free, "until then the keeper finds what is being sent");
    let mut words = Vec::new();
    far.read_to_end(&mut words).expect("the end");
    assert_eq!(words, b"last words");
}

/// The worker is killed before any of its calls while it sends what the program has left in its ring; then the keeper looks.
#[test]
fn what_a_killed_worker_has_sent_of_a_ring_is_not_sent_again() {
    let words: Vec<u8> = (0..40_000).map(|n| (n % 251) as u8).collect();
    let mut deaths_in_between = 0;
    for calls in 0.. {
        let (near, mut far) = connected();
        // The kernel takes a part of the bytes at a time.
        raw::set_int(&near, libc::SOL_SOCKET, libc::SO_SNDBUF, 5000);
        let memory = memory_of_a_link();
        let (mut program, mut end) = in_rings(&memory, &near);
        let ledger = Arc::new(Ledger::create(1).expect("a ledger"));
        let [record, of_worker] = [0; 2].map(|number| Record::new(ledger.clone(), number));
        let ends = Ends { local: near.local_addr().expect("local"), remote: near.peer_addr().expect("remote") };
        record.assign(&ends);
        end.write(&words);
        program.give_up();
        let socket = copy(&near);
        let has_died = die_before(calls, move || {
            program.send_left(socket.as_fd(), Some(&of_worker));
        });
        restore(&record, Arc::new(link(&memory, STACK)), SLOT, near.as_fd(), true).expect("restore");
        let sent_to = link(&memory, STACK).incoming(SLOT).sent_to();
        deaths_in_between += u32::from(has_died && sent_to > BEFORE as u64);
        end.tx.poll(end.link.outgoing(SLOT)).expect("no violation"); // it looks what was sent once it knows of the end
        end.send_rest(&near);
        near.shutdown(Shutdown::Write).expect("shutdown");
        let mut found = Vec::new();
        far.read_to_end(&mut found).expect("the end");
        assert!(found == words, "{} bytes after {calls} calls", found.len());
        if !has_died {
            break;
        }
    }
    assert!(deaths_in_between > 0, "the kernel has taken all at once");
}

/// The program has not looked since its connection went back. Bytes that the peer has must not go by kernel once more.
#[test]
fn a_keeper_leaves_a_ring_where_the_killed_worker_has_left_it() {
    let (near, _far) = connected();
    let memory = memory_of_a_link();
    let (mut program, mut end) = in_rings(&memory, &near);
    end.write(&[7; 100]);
    assert!(matches!(program.waiting(), Ok(100)));
    program.release(60).expect("no violation");
    program.give_up();
    let record = Record::new(Arc::new(Ledger::create(1).expect("a ledger")), 0);
    let ends = Ends { local: near.local_addr().expect("local"), remote: near.peer_addr().expect("remote") };
    record.assign(&ends);
    restore(&record, Arc::new(link(&memory, STACK)), SLOT, near.as_fd(), true).expect("restore");
    end.tx.poll(end.link.outgoing(SLOT)).expect("no violation");
    assert_eq!(end.tx.unread(), 40);
}
