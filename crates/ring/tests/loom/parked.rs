//! A socket that the stack parks and gives back, and the program's calls on it.

use crate::engine::{Arc, Mutex, explore, thread};
use sidestep_abi::link::Slot;
use sidestep_ring::slot::{self, Wish};

/// What the kernel says of the socket. Calls on one socket follow each other in the kernel, so a lock stands for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Socket {
    Live,
    Parked,
}

/// The number of the connection.
const NUMBER: u32 = 7;

struct Connection {
    slot: Slot,
    socket: Mutex<Socket>,
    /// The stack's copy of the descriptor is open.
    copy: Mutex<bool>,
}

impl Connection {
    fn new(socket: Socket) -> Arc<Connection> {
        let connection = Connection { slot: Slot::default(), socket: Mutex::new(socket), copy: Mutex::new(true) };
        if socket == Socket::Parked {
            slot::set_parked(&connection.slot, 1);
        }
        slot::hold_socket(&connection.slot, NUMBER);
        Arc::new(connection)
    }

    fn ask(&self) -> Socket {
        *self.socket.lock().unwrap()
    }

    fn turn(&self, state: Socket) {
        *self.socket.lock().unwrap() = state;
    }
}

/// Catches: a stack that parks the socket before it says so, or says that it is back before it is; a program that looks at the
/// number only before its call, or only after it, or that takes an odd number for an answer.
#[test]
fn an_answer_that_counts_is_one_of_the_live_socket() {
    explore("an_answer_that_counts_is_one_of_the_live_socket", 4, || {
        let connection = Connection::new(Socket::Live);
        let stack = {
            let connection = connection.clone();
            thread::spawn(move || {
                slot::set_parked(&connection.slot, 1);
                connection.turn(Socket::Parked);
                connection.turn(Socket::Live);
                slot::set_parked(&connection.slot, 2);
            })
        };
        let before = slot::parked(&connection.slot);
        let answer = connection.ask();
        if before.is_multiple_of(2) && slot::parked(&connection.slot) == before {
            assert_eq!(answer, Socket::Live, "parked {before}");
        }
        stack.join().unwrap();
    });
}

/// Catches: a stack that says so before it has given the connection back, or that overlooks a wish; a program that goes on before
/// the number is even.
#[test]
fn a_program_that_wants_its_socket_gets_it() {
    explore("a_program_that_wants_its_socket_gets_it", 4, || {
        let connection = Connection::new(Socket::Parked);
        let stack = {
            let connection = connection.clone();
            thread::spawn(move || {
                while slot::wished(&connection.slot) == Wish::None {
                    thread::yield_now();
                }
                connection.turn(Socket::Live);
                slot::set_parked(&connection.slot, 2);
            })
        };
        slot::wish(&connection.slot, Wish::Socket);
        while !slot::parked(&connection.slot).is_multiple_of(2) {
            thread::yield_now();
        }
        assert_eq!(connection.ask(), Socket::Live);
        stack.join().unwrap();
    });
}

/// Catches: a stack that says that it has no copy before it has closed it; `grant_socket` that forgets a wish for the slot.
#[test]
fn the_close_of_a_program_that_has_waited_is_the_last_one() {
    explore("the_close_of_a_program_that_has_waited_is_the_last_one", 4, || {
        let connection = Connection::new(Socket::Live);
        let stack = {
            let connection = connection.clone();
            thread::spawn(move || {
                slot::grant_socket(&connection.slot);
                while slot::wished(&connection.slot) != Wish::Slot {
                    thread::yield_now();
                }
                *connection.copy.lock().unwrap() = false;
                slot::let_go_of_socket(&connection.slot, NUMBER);
            })
        };
        slot::wish(&connection.slot, Wish::Slot);
        while slot::is_socket_held(&connection.slot) {
            thread::yield_now();
        }
        assert!(!*connection.copy.lock().unwrap());
        stack.join().unwrap();
    });
}
