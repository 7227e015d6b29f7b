//! What may happen to a connection, a step at a time.
#![allow(dead_code)] // each engine uses its part

use super::input::Input;
use super::pair_sender::PATIENCE;
use sidestep_conn::Flip;

/// Bytes of a ring.
pub const RING: usize = 8;

/// Which side acts.
pub type Side = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Write(Side, usize),
    Read(Side, usize),
    /// The writing thread is woken, or begins to wait.
    Serve(Side),
    Discard(Side),
    /// The side asks whether the connection can be the kernel's alone again, once it is on its way there.
    Demote(Side),
    /// The reading thread gives the socket to somebody who reads from the kernel alone.
    Leave(Side),
    /// It sends to itself at most so many bytes that its writer has not sent.
    Deputise(Side, usize),
    /// The writing thread goes by kernel for good.
    Keep(Side),
    /// shutdown(SHUT_WR), SHUT_RD, SHUT_RDWR.
    Shut(Side),
    ShutRead(Side),
    ShutBoth(Side),
    /// SO_LINGER without time: the end of this socket is a reset.
    Linger(Side),
    /// close(2). It may have to wait for the kernel.
    Close(Side),
    /// It has waited for as long as it does, and resets the connection.
    GiveUp(Side),
    /// Something between the two ends resets the connection.
    Cut,
    /// The process dies. The broker notices later.
    Die(Side),
    /// The same, while its reading thread sends to itself on the writer's behalf.
    DieOverSending(Side),
    Bury,
    /// The operator's detach and attach.
    Hold(bool),
    /// The side waits where it hears no doorbell.
    Away(Side, bool),
    /// Time passes.
    Pass(u64),
}

impl Step {
    pub fn from_bytes(bytes: &mut Input) -> Step {
        let side = bytes.below(2);
        match bytes.below(36) {
            0..=8 => Step::Write(side, 1 + bytes.below(2 * RING)),
            9..=17 => Step::Read(side, 1 + bytes.below(2 * RING)),
            18..=21 => Step::Serve(side),
            22 if bytes.below(2) == 0 => Step::Demote(side),
            22 => Step::Discard(side),
            23 if bytes.below(4) == 0 => Step::Leave(side),
            23 => Step::Deputise(side, bytes.below(RING)),
            24 if bytes.below(4) == 0 => Step::Keep(side),
            24 => Step::Deputise(side, bytes.below(RING)),
            25 => [Step::Shut, Step::ShutRead, Step::ShutBoth][bytes.below(3)](side),
            26 if bytes.below(8) == 0 => Step::Die(side),
            26 if bytes.below(8) == 0 => Step::DieOverSending(side),
            27 => [Step::Close, Step::GiveUp, Step::Linger][bytes.below(3)](side),
            28 if bytes.below(8) == 0 => Step::Cut,
            26..=28 => Step::Bury,
            29 => Step::Hold(bytes.below(2) == 0),
            30 => Step::Away(side, bytes.below(2) == 0),
            31 if bytes.below(2) == 0 => Step::Pass(PATIENCE),
            _ => Step::Pass(PATIENCE / 2),
        }
    }

    /// Whose it is.
    pub fn side(self) -> Option<Side> {
        match self {
            Step::Write(side, _) | Step::Read(side, _) | Step::Deputise(side, _) | Step::Away(side, _) => Some(side),
            Step::Serve(side) | Step::Discard(side) | Step::Leave(side) | Step::Keep(side) => Some(side),
            Step::Demote(side) => Some(side),
            Step::Shut(side) | Step::ShutRead(side) | Step::ShutBoth(side) => Some(side),
            Step::Linger(side) | Step::Close(side) | Step::GiveUp(side) => Some(side),
            Step::Die(side) | Step::DieOverSending(side) => Some(side),
            Step::Cut | Step::Bury | Step::Hold(_) | Step::Pass(_) => None,
        }
    }
}

/// How a connection is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes that the kernel takes of one direction.
    pub room: usize,
    /// How many of them its receiver takes. The others are still at the sender, and lost after a reset.
    pub window: usize,
    pub flip: Flip,
}

impl Setup {
    /// A kernel that takes as much as a ring, and no test aid.
    pub const PLAIN: Setup = Setup { room: RING, window: RING, flip: Flip::NEVER };

    pub fn from_bytes(bytes: &mut Input) -> Setup {
        let room = [3, RING, 64][bytes.below(3)];
        let window = if bytes.below(3) == 0 { 2 } else { room };
        let flip = if bytes.below(4) == 0 { Flip::every(1 + bytes.below(12) as u64) } else { Flip::NEVER };
        Setup { room, window, flip }
    }
}

/// Calls `check` with every order of the steps of these threads. How many orders there are.
pub fn every_order(threads: &[&[Step]], check: &mut impl FnMut(&[Step])) -> u64 {
    fn go_on(threads: &mut Vec<&[Step]>, order: &mut Vec<Step>, check: &mut impl FnMut(&[Step])) -> u64 {
        let mut orders = 0;
        for i in 0..threads.len() {
            let steps = threads[i];
            if let Some((first, left)) = steps.split_first() {
                threads[i] = left;
                order.push(*first);
                orders += go_on(threads, order, check);
                order.pop();
                threads[i] = steps;
            }
        }
        if threads.iter().all(|steps| steps.is_empty()) {
            check(order);
            orders = 1;
        }
        orders
    }
    go_on(&mut threads.to_vec(), &mut Vec::new(), check)
}

/// What a fuzzer's bytes stand for.
pub fn from_bytes(data: &[u8]) -> (Setup, Vec<Step>) {
    let mut bytes = Input::new(data);
    let setup = Setup::from_bytes(&mut bytes);
    (setup, std::iter::from_fn(|| (!bytes.is_empty()).then(|| Step::from_bytes(&mut bytes))).collect())
}
