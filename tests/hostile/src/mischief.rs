//! What an attacker does besides writing into shared memory: messages, doorbells, its socket.

use crate::attack::{Attacker, Talk};
use crate::common::{self, FakeMember};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::ReadWriteFlags;
use rustix::net::SendFlags;
use sidestep_abi::VERSION;
use sidestep_abi::msg::{Kind, LEN, Msg};
use sidestep_broker::listen::Address;
use sidestep_broker::wire;
use sidestep_posix::rng::Rng;
use std::io::IoSliceMut;
use std::net::Shutdown;
use std::sync::atomic::Ordering::SeqCst;

/// One misdeed; says which.
pub fn any(attacker: &mut Attacker, talk: &Talk, broker: &Address, rng: &mut Rng) -> &'static str {
    match rng.below(9) {
        0 => rung_for_nothing(attacker, rng),
        1 => filled(attacker, rng),
        2 => emptied(attacker),
        3 => {
            attacker.bells.retain(|_, _| rng.below(2) == 0);
            "closed doorbells"
        }
        4 => {
            let _ = talk.stream.shutdown(Shutdown::Write);
            "an end by kernel"
        }
        7 => {
            filled(attacker, rng);
            attacker.bells.values().for_each(make_blocking);
            "made doorbells blocking, and filled them"
        }
        5 => babble(broker, talk, rng),
        6 => {
            lie_to_the_broker(&attacker.member, talk, rng);
            "plausible messages"
        }
        _ => {
            attacker.sleep_with_held_doorbells(talk);
            "sleeps at doorbells that it holds"
        }
    }
}

fn rung_for_nothing(attacker: &Attacker, rng: &mut Rng) -> &'static str {
    for _ in 0..rng.below(50) {
        attacker.bells.values().for_each(|bell| add(bell, 1));
    }
    "rang for nothing"
}

/// Adds to a doorbell without being caught by what we have made of it ourselves.
pub fn add(bell: &OwnedFd, n: u64) {
    let flags = fcntl_getfl(bell).unwrap_or(OFlags::empty());
    let _ = fcntl_setfl(bell, flags | OFlags::NONBLOCK);
    let _ = rustix::io::write(bell, &n.to_ne_bytes());
    let _ = fcntl_setfl(bell, flags);
}

/// An eventfd that is full takes no further ring: nobody but us has these.
fn filled(attacker: &Attacker, rng: &mut Rng) -> &'static str {
    let most = u64::MAX - 1 - rng.below(2);
    emptied(attacker);
    attacker.bells.values().for_each(|bell| add(bell, most));
    "filled doorbells"
}

/// Whoever writes to it then waits until somebody reads, if it is full.
pub fn make_blocking(bell: &OwnedFd) {
    let _ = fcntl_setfl(bell, OFlags::empty());
}

fn emptied(attacker: &Attacker) -> &'static str {
    for bell in attacker.bells.values() {
        let mut count = [0; 8];
        let _ = rustix::io::preadv2(bell, &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT);
    }
    "emptied doorbells"
}

/// A stranger's records: of any length and content, with any descriptor.
fn babble(broker: &Address, talk: &Talk, rng: &mut Rng) -> &'static str {
    let Ok(socket) = broker.connect() else { return "the broker takes nobody" };
    if rng.below(2) == 0 {
        let _ = wire::send(socket.as_fd(), &Msg::new(Kind::Hello), None);
    }
    for _ in 0..16 {
        let mut bytes: Vec<u8> =
            (0..*rng.pick(&[0, 1, LEN - 1, LEN, LEN, LEN, LEN, LEN + 1, 4000])).map(|_| rng.below(3) as u8).collect();
        if bytes.len() >= LEN {
            bytes[..4].copy_from_slice(&(rng.below(40) as u32).to_le_bytes());
            bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
            bytes[32..36].copy_from_slice(&talk.given.link.to_le_bytes());
        }
        let _ = rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    "babble"
}

/// Right in form, wrong in content: slots and links of others, offers of what cannot be offered.
fn lie_to_the_broker(member: &FakeMember, talk: &Talk, rng: &mut Rng) {
    for _ in 0..rng.below(12) {
        let (link, slot, side) = (talk.given.link, rng.below(1026) as u32, rng.below(3) as u32);
        let link = link.wrapping_add(rng.below(3) as u32).wrapping_sub(1);
        let own = (u64::from(link), slot) == (u64::from(talk.given.link), talk.given.slot as u32);
        let msg = match rng.below(3) {
            0 if !own => Msg { link, slot, side, ..Msg::new(Kind::Release) },
            1 => Msg { offer: rng.number(), ..Msg::new(Kind::Withdraw) },
            _ => {
                let socket: OwnedFd = common::unix_socket();
                let msg = Msg { offer: rng.number(), arg: rng.number(), ..Msg::new(Kind::Offer) };
                let _ = wire::send(member.socket.as_fd(), &msg, Some(socket.as_fd()));
                continue;
            }
        };
        let _ = wire::send(member.socket.as_fd(), &msg, None);
    }
    member.page().totals.ring_tx.store(rng.number(), SeqCst);
    member.page().hold.store(rng.number() as u32, SeqCst);
}
