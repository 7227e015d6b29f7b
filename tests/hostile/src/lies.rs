//! What an attacker writes into the memory that it shares with its victim.

use crate::attack::Talk;
use sidestep_abi::link::{Doorbell, FROZEN, RINGS_AT, SIDES_AT, SLOTS_AT, SideArea, Slot, UNUSED};
use sidestep_posix::rng::Rng;
use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Any bytes of ours are of this range, whether we wrote them truthfully or not.
pub const ALPHABET: std::ops::RangeInclusive<u8> = b'a'..=b'z';
/// What lies before and behind our rings.
pub const CANARY: u8 = 0xEE;

/// Writes one lie at random; says which.
pub fn any(talk: &Talk, rng: &mut Rng) -> String {
    let own = SLOTS_AT + talk.given.slot * size_of::<Slot>();
    let (what, at) = match rng.below(16) {
        0..=8 => ("slot", own + 4 * rng.below(size_of::<Slot>() as u64 / 4) as usize),
        9 => ("another slot", SLOTS_AT + rng.below((RINGS_AT - SLOTS_AT) as u64) as usize / 8 * 8),
        10..=12 => ("doorbells", SIDES_AT + rng.below(2 * size_of::<SideArea>() as u64) as usize / 8 * 8),
        13 => ("header", 8 * rng.below(8) as usize),
        14 => return scribble(talk, rng),
        _ => return all_doorbells(talk, rng),
    };
    let now = talk.memory.map.at::<AtomicU64>(at / 8 * 8).load(SeqCst);
    let value = value(talk, rng, now);
    // Most words of a side are 32 bits, the others 64; half a word is a lie too.
    if at.is_multiple_of(8) && rng.below(2) == 0 {
        talk.memory.map.at::<AtomicU64>(at).store(value, SeqCst);
    } else {
        talk.memory.map.at::<AtomicU32>(at).store(value as u32, SeqCst);
    }
    if what == "slot" { format!("slot+{} = {value:#x}", at - own) } else { format!("{what}+{at} = {value:#x}") }
}

/// Values that mean something to somebody.
fn value(talk: &Talk, rng: &mut Rng, now: u64) -> u64 {
    let size = talk.memory.ring_size as u64;
    let near = *rng.pick(&[0, now, now & !FROZEN, talk.tx.pos(), talk.rx.pos()]);
    match rng.below(12) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => *rng.pick(&[FROZEN, UNUSED, FROZEN - 1, 1 << 32, u64::from(u32::MAX), i64::MIN as u64 + 1]),
        4 => now ^ FROZEN,
        5 => near | FROZEN,
        6 => near.wrapping_add(*rng.pick(&[1, size / 2, size - 1, size, size + 1, 1 << 40])),
        7 => near.wrapping_sub(*rng.pick(&[1, size / 2, size, size + 1])),
        8 => near,
        9 => now ^ 1 << rng.below(64),
        10 => rng.below(4096),
        _ => rng.number(),
    }
}

/// Other bytes in our ring, and in the victim's own.
fn scribble(talk: &Talk, rng: &mut Rng) -> String {
    let side = rng.below(2) as usize;
    for _ in 0..256 {
        let at = rng.below(talk.memory.ring_size as u64) as usize;
        let byte = ALPHABET.start() + rng.below(26) as u8;
        talk.memory.ring_byte(talk.given.slot, side, at).store(byte, SeqCst);
    }
    format!("ring {side}: other bytes")
}

/// All doorbells marked for all slots, and armed.
fn all_doorbells(talk: &Talk, rng: &mut Rng) -> String {
    let side = rng.below(2) as usize;
    let armed = *rng.pick(&[0, 1, u32::MAX]);
    for doorbell in &talk.memory.side_area(side).doorbells {
        fill_doorbell(doorbell, armed);
    }
    format!("doorbells of side {side} all ones, armed {armed:#x}")
}

fn fill_doorbell(doorbell: &Doorbell, armed: u32) {
    doorbell.ready.iter().for_each(|word| word.store(u64::MAX, SeqCst));
    doorbell.news.store(u64::MAX, SeqCst);
    doorbell.armed.store(armed, SeqCst);
}

/// What a lie is, and how it is told.
type Crafted = (&'static str, fn(&Talk));

/// Lies that are each known to be a different kind of trouble, and then silence.
pub const CRAFTED: &[Crafted] = &[
    ("more published than the ring holds", |t| {
        t.published().tail.store(t.tx.pos() + t.memory.ring_size as u64 + 1, SeqCst);
    }),
    ("published less than before", |t| t.published().tail.store(t.tx.pos().wrapping_sub(1), SeqCst)),
    ("base behind the tail", |t| t.published().base.store(u64::MAX, SeqCst)),
    ("the victim's reading head moved", |t| t.read_by_victim().store(t.tx.pos().wrapping_add(3), SeqCst)),
    ("the victim's reading head at 0", |t| t.read_by_victim().store(0, SeqCst)),
    ("frozen somewhere else", |t| t.read_by_victim().store(FROZEN | (t.tx.pos() + 5), SeqCst)),
    ("thawed after an end", |t| {
        t.read_by_victim().fetch_or(FROZEN, SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(2));
        t.read_by_victim().fetch_and(!FROZEN, SeqCst);
        t.published().tail.store(7, SeqCst);
    }),
    ("an end, and everything still to come", |t| {
        t.published().tail.store(FROZEN - 1, SeqCst);
        t.read_by_victim().fetch_or(FROZEN, SeqCst);
    }),
    ("a stretch in the future", |t| {
        t.read_by_victim().fetch_or(FROZEN, SeqCst);
        t.published().ring_from.store(u64::MAX, SeqCst);
        t.published().epoch.fetch_add(1, SeqCst);
    }),
    ("a stretch in the past", |t| {
        t.read_by_victim().fetch_or(FROZEN, SeqCst);
        t.published().ring_from.store(0, SeqCst);
        t.published().epoch.fetch_add(7, SeqCst);
    }),
    ("read more than was written", |t| t.read_by_us().store(t.rx.pos() + (1 << 40), SeqCst)),
    ("read less than before", |t| t.read_by_us().store(t.rx.pos().wrapping_sub(1), SeqCst)),
    ("as if never begun", |t| t.read_by_us().store(UNUSED, SeqCst)),
    ("end of the stream announced, and none", |t| t.published().fin.store(1, SeqCst)),
    ("no doorbell is known", |t| t.memory.side_area(t.given.side).known.store(0, SeqCst)),
    ("every doorbell is known", |t| t.memory.side_area(t.given.side).known.store(u64::MAX, SeqCst)),
    ("freezes without end", |t| {
        t.words().side[t.given.side].froze.fetch_add(1 << 31, SeqCst);
    }),
    ("held and ready at once", |t| {
        t.words().hold.store(u32::MAX, SeqCst);
        t.words().side[t.given.side].ready.store(u32::MAX, SeqCst);
    }),
    ("sends for ever what the victim has left to send", |t| {
        t.words().side[1 - t.given.side].sends.store(1, SeqCst);
        t.published().tail.fetch_add(t.memory.ring_size as u64 / 2, SeqCst); // a server answers it
        std::thread::sleep(std::time::Duration::from_millis(2));
        t.read_by_us().fetch_or(FROZEN, SeqCst);
        t.words().side[t.given.side].froze.fetch_add(1, SeqCst);
    }),
    ("ring here, all of you", |t| t.words().side[t.given.side].doorbells.store(u64::MAX, SeqCst)),
    ("every word of the slot all ones", |t| t.fill_slot(u64::MAX)),
    ("every word of the slot 0", |t| t.fill_slot(0)),
    ("bytes by kernel behind the ring", |t| drop((&t.stream).write(&[*ALPHABET.start(); 77]))),
    ("every doorbell all ones", |t| {
        (0..2).for_each(|side| t.memory.side_area(side).doorbells.iter().for_each(|d| fill_doorbell(d, 1)));
    }),
];
