//! The kernel's socket, as program and stack see it.

use super::{byte, bytes};
use crate::START;
use crate::engine::Mutex;
use std::collections::VecDeque;

pub struct Socket(Mutex<State>);

struct State {
    /// The kernel has forgotten the connection.
    is_detached: bool,
    /// The stack has not yet said that the program may use it.
    is_stacks: bool,
    unread: VecDeque<u8>,
    /// What was sent since the connection was given back, from this position on.
    sent: Vec<u8>,
    from: u64,
}

impl Socket {
    pub fn parked() -> Socket {
        let (unread, sent) = (VecDeque::new(), Vec::new());
        Socket(Mutex::new(State { is_detached: true, is_stacks: true, unread, sent, from: START }))
    }

    // --- for the stack ----------------------------------------------------------------------------------------------------------

    pub fn is_detached(&self) -> bool {
        self.0.lock().unwrap().is_detached
    }

    /// The kernel carries the connection again. `in_flight`: what was sent before, from this position on.
    pub fn attach(&self, unread: Vec<u8>, from: u64, in_flight: &[u8]) {
        let mut state = self.0.lock().unwrap();
        (state.is_detached, state.unread, state.from) = (false, unread.into(), from);
        state.sent = in_flight.to_vec();
    }

    /// How many bytes were given to the kernel since, those in flight included.
    pub fn sent_since(&self) -> u64 {
        self.0.lock().unwrap().sent.len() as u64
    }

    pub fn send_as_stack(&self, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap();
        assert!(!state.is_detached);
        state.sent.extend(bytes);
    }

    /// The stack is about to say that the program may use it.
    pub fn let_go(&self) {
        self.0.lock().unwrap().is_stacks = false;
    }

    // --- for the program --------------------------------------------------------------------------------------------------------

    fn as_program<T>(&self, call: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.lock().unwrap();
        assert!(!state.is_stacks, "a call on a parked socket");
        call(&mut state)
    }

    pub fn send(&self, bytes: &[u8]) {
        self.as_program(|state| state.sent.extend(bytes));
    }

    pub fn receive(&self) -> Option<u8> {
        self.as_program(|state| state.unread.pop_front())
    }

    /// FIONREAD. The answer of a parked socket says nothing.
    pub fn queued(&self) -> usize {
        self.0.lock().unwrap().unread.len()
    }

    /// The kernel's counts of bytes read and written. Those of a parked socket are wrong.
    pub fn counts(&self) -> (u64, u64) {
        self.as_program(|state| (0, state.sent.len() as u64))
    }

    /// The peer gets the program's bytes up to here, each once and in order.
    pub fn check(&self, written: u64) {
        let state = self.0.lock().unwrap();
        let expected = bytes(state.from, (written - state.from) as usize);
        assert_eq!(state.sent, expected, "from {} on", state.from);
        assert!(state.unread.is_empty(), "bytes that nobody reads, as {}", byte(written));
    }
}
