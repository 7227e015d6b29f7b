//! An attacker's end of a connection: a legal member as far as anybody can tell, until it is not.

use crate::common::{FakeMember, Given, Memory};
use crate::disguise::Disguise;
use crate::lies::{ALPHABET, CANARY};
use rustix::fd::{AsFd, OwnedFd};
use sidestep_abi::link::{SLOTS, Slot, Writer};
use sidestep_abi::msg::Kind;
use sidestep_broker::listen::Address;
use sidestep_broker::wire::{self, Incoming};
use sidestep_conn::{Advance, Half, Read, Rx, Tx, Write};
use sidestep_posix::rng::Rng;
use sidestep_ring::{Data, doorbell, side, space};
use sidestep_testkit::held::Held;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long an attacker goes on behaving before it gives up on being paired.
const PAIRING: Duration = Duration::from_secs(5);

/// An attacker as the broker knows it.
pub struct Attacker {
    pub member: FakeMember,
    next_offer: u64,
    links: HashMap<u32, Rc<Memory>>,
    /// The victims' doorbells, by link and place.
    pub bells: HashMap<(u32, u32), OwnedFd>,
    slots: HashMap<u64, Given>,
    /// Our own doorbells: nobody listens, and those that are held cannot be touched without waiting for us.
    own: Vec<(OwnedFd, Option<Held>)>,
}

/// Between a ring and a buffer of ours.
fn copy(to: *mut u8, from: *const u8, n: usize) -> bool {
    // SAFETY: `n` is at most what the ring has, and the length of the buffer.
    unsafe { to.copy_from_nonoverlapping(from, n) };
    true
}

impl Attacker {
    pub fn join(broker: &Address, rng: &mut Rng) -> Attacker {
        let _user = Disguise::attacker();
        let member = FakeMember::join(broker, 4096);
        let own = (0..rng.below(4) as u32).map(|place| (member.bell(place), None)).collect();
        let (links, bells, slots) = Default::default();
        Attacker { member, next_offer: 1, links, bells, slots, own }
    }

    /// Hears what the broker says; answers nothing. False: the broker has had enough of us.
    fn listen(&mut self) -> bool {
        loop {
            let record = match wire::receive(self.member.socket.as_fd()) {
                Incoming::Record(record) => record,
                other => return !matches!(other, Incoming::End),
            };
            let msg = record.msg;
            match (msg.kind(), record.fd) {
                (Some(Kind::Link), Some(fd)) => drop(self.links.insert(msg.link, Rc::new(Memory::new(msg, fd)))),
                (Some(Kind::PeerDoorbell), Some(fd)) => {
                    if let Some(memory) = self.links.get(&msg.link) {
                        doorbell::add_known(memory.side_area(memory.side), msg.place);
                    }
                    self.bells.insert((msg.link, msg.place), fd);
                }
                (Some(Kind::Slot), _) => {
                    let given = Given { link: msg.link, slot: msg.slot as usize, side: msg.side as usize };
                    self.slots.insert(msg.offer, given);
                }
                _ => {}
            }
        }
    }

    /// Offers the connection, at once or `late`, after the victim has, and talks until both ends are paired. None: they
    /// never were. Who comes first has the first of the two rings.
    pub fn pair(&mut self, mut stream: TcpStream, calls: bool, late: bool) -> Option<Talk> {
        let offer = self.next_offer;
        self.next_offer += 1;
        stream.set_nonblocking(true).ok()?;
        let (deadline, mut sent, mut received) = (Instant::now() + PAIRING, 0, 0);
        let mut offers_at = if late { 400 } else { 0 };
        loop {
            if !self.listen() {
                return None;
            }
            if received >= offers_at {
                self.member.offer(offer, &stream);
                offers_at = u64::MAX;
            }
            if let Some(given) = self.slots.remove(&offer) {
                let memory = self.links.get(&given.link)?.clone();
                return Some(Talk::new(stream, memory, given, sent, received));
            }
            if Instant::now() > deadline {
                return None;
            }
            let mut buffer = [b'p'; 4096];
            if calls && sent == received {
                sent += stream.write(&buffer[..100]).unwrap_or(0) as u64;
            }
            let n = stream.read(&mut buffer).unwrap_or(0);
            received += n as u64;
            if !calls && n > 0 {
                stream.write_all(&buffer[..n]).ok()?;
                sent += n as u64;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Pretends to sleep at all of its own doorbells, with the mutex of each in its hands: the victim rings there.
    pub fn sleep_with_held_doorbells(&mut self, talk: &Talk) {
        for (place, (bell, held)) in self.own.iter_mut().enumerate() {
            held.get_or_insert_with(|| {
                let _root = Disguise::root();
                Held::new(bell)
            });
            talk.memory.side_area(talk.given.side).doorbells[place].armed.store(1, SeqCst);
            side::add_doorbell(&talk.words().side[talk.given.side], place as u32);
        }
    }

    /// Lets go of them: as long as they are held, the broker can do nothing for any attacker.
    pub fn let_doorbells_go(&mut self) {
        self.own.iter_mut().for_each(|(_, held)| *held = None);
    }

    /// Rings the victim as a correct member does after it has published something.
    pub fn ring(&self, talk: &Talk) {
        let area = talk.memory.side_area(1 - talk.given.side);
        let places = side::doorbells(&talk.words().side[1 - talk.given.side]);
        for place in (0..64u32).filter(|p| places & 1 << p != 0) {
            if doorbell::ring(&area.doorbells[place as usize], talk.given.slot, || ())
                && let Some(ringer) = self.bells.get(&(talk.given.link, place))
            {
                crate::mischief::add(ringer, 1);
            }
        }
    }

    /// Behaves until bytes went by ring in both directions, and for a while longer. False: it never came to that.
    pub fn behave(&mut self, talk: &mut Talk, calls: bool, rng: &mut Rng) -> bool {
        talk.half(1 - talk.given.side).0.set_ready();
        let (deadline, mut more) = (Instant::now() + PAIRING, rng.below(30));
        let mut owed = talk.rx.pos().saturating_sub(talk.tx.pos());
        while Instant::now() < deadline && more > 0 {
            self.listen();
            if calls && talk.tx.pos() == talk.rx.pos() {
                owed = rng.size(3000) as u64;
            }
            let Ok(sent) = talk.send(owed) else { return false };
            let before = talk.rx.pos();
            let Ok(received) = talk.receive() else { return false };
            owed = owed - sent + if calls { 0 } else { talk.rx.pos() - before };
            if sent + received > 0 {
                self.ring(talk);
                more -= u64::from(talk.is_by_ring());
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        more == 0
    }
}

/// One attacked connection.
pub struct Talk {
    pub stream: TcpStream,
    pub memory: Rc<Memory>,
    pub given: Given,
    pub tx: Tx,
    pub rx: Rx,
    /// Bytes that came back and that no byte of ours can have been.
    pub strange: Vec<u8>,
}

/// The words do not fit together any more.
pub struct Over;

impl Talk {
    fn new(stream: TcpStream, memory: Rc<Memory>, given: Given, sent: u64, received: u64) -> Talk {
        let talk = Talk { stream, memory, given, tx: Tx::native(sent), rx: Rx::native(received), strange: Vec::new() };
        for side in 0..2 {
            talk.fill_ring(given.slot, side, *ALPHABET.start());
        }
        talk.fill_ring(talk.behind(), 0, CANARY);
        talk
    }

    pub fn words(&self) -> &Slot {
        self.memory.slot(self.given.slot)
    }

    /// Our words of the direction that the victim reads.
    pub fn published(&self) -> &Writer {
        &self.words().writer[self.given.side]
    }

    pub fn read_by_victim(&self) -> &AtomicU64 {
        &self.words().reader[self.given.side].head
    }

    pub fn read_by_us(&self) -> &AtomicU64 {
        &self.words().reader[1 - self.given.side].head
    }

    pub fn is_by_ring(&self) -> bool {
        self.tx.ring > 0 && self.rx.ring > 0
    }

    pub fn fill_slot(&self, value: u64) {
        let at = sidestep_abi::link::SLOTS_AT + self.given.slot * size_of::<Slot>();
        for word in (at..at + size_of::<Slot>()).step_by(8) {
            self.memory.map.at::<AtomicU64>(word).store(value, SeqCst);
        }
    }

    fn fill_ring(&self, slot: usize, side: usize, byte: u8) {
        (0..self.memory.ring_size).for_each(|at| self.memory.ring_byte(slot, side, at).store(byte, SeqCst));
    }

    /// The ring behind ours. No connection uses it: an attacker has one connection with each victim.
    fn behind(&self) -> usize {
        (self.given.slot + 1) % SLOTS
    }

    fn half(&self, writing: usize) -> (Half<'_>, Data) {
        let size = self.memory.ring_size;
        let start = self.memory.ring_byte(self.given.slot, writing, 0).as_ptr();
        // SAFETY: a whole ring of the mapping, which lives as long as `self`.
        let data = unsafe { Data::new(start, size) };
        (Half::of(self.words(), writing, size), data)
    }

    /// Sends up to `n` bytes as a correct member does. Returns how many went.
    fn send(&mut self, n: u64) -> Result<u64, Over> {
        let mut tx = self.tx;
        let (half, data) = self.half(self.given.side);
        let bytes = vec![b'm'; n as usize];
        let mut sent = 0;
        for _ in 0..8 {
            let rest = &bytes[sent..];
            if rest.is_empty() && !tx.has_unsent() {
                break;
            }
            match tx.next(half, rest.len()).map_err(|_| Over)? {
                Write::Kernel if tx.may_begin(half) => {
                    tx.begin(half).map_err(|_| Over)?;
                }
                Write::Kernel => {
                    let n = (&self.stream).write(rest).unwrap_or(0);
                    tx.put_kernel(n);
                    sent += n;
                }
                Write::Ring(room) => {
                    let n = room.min(rest.len());
                    assert!(data.put(tx.at(), rest.as_ptr(), n, copy));
                    tx.put_ring(half, n).map_err(|_| Over)?;
                    sent += n;
                }
                Write::Unread { at, len } => {
                    let (from, run) = data.run(at);
                    // SAFETY: inside the ring; only bytes of atomics' size are read, whatever they are.
                    let part = unsafe { std::slice::from_raw_parts(from, run.min(len)) };
                    tx.sent_unread(half, (&self.stream).write(part).unwrap_or(0));
                }
            }
        }
        self.tx = tx;
        Ok(sent as u64)
    }

    /// Receives what is there as a correct member does. Returns how much it was.
    fn receive(&mut self) -> Result<u64, Over> {
        let mut rx = self.rx;
        let (half, data) = self.half(1 - self.given.side);
        let mut buffer = [0u8; 8192];
        let n = match rx.next(half).map_err(|_| Over)? {
            Read::Copies => {
                let mut queued = 0u32;
                // SAFETY: FIONREAD writes one int.
                unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&self.stream), libc::FIONREAD, &raw mut queued) };
                let n = rx.discardable(half, u64::from(queued)).map_err(|_| Over)?.min(buffer.len() as u64);
                rx.discarded((&self.stream).read(&mut buffer[..n as usize]).unwrap_or(0) as u64);
                0
            }
            Read::Kernel(limit) => {
                let room = limit.min(buffer.len() as u64) as usize;
                let n = (&self.stream).read(&mut buffer[..room]).unwrap_or(0);
                rx.took_kernel(n);
                n
            }
            Read::Ring(n) => {
                let n = n.min(buffer.len());
                assert!(data.get(rx.at(half), buffer.as_mut_ptr(), n, copy));
                match rx.took_ring(half, n).map_err(|_| Over)? {
                    Advance::Frozen => 0,
                    Advance::Done => {
                        let _ = space::grant(half.writer, 0, half.size);
                        n
                    }
                }
            }
        };
        self.rx = rx;
        self.judge(&buffer[..n]);
        Ok(n as u64)
    }

    /// Reads all that the victim has sent by kernel since, and judges it; true: the stream has ended.
    pub fn last_words(&mut self) -> bool {
        let mut buffer = [0; 65536];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(n) => self.judge(&buffer[..n]),
                Err(e) => return e.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Whatever the victim gives back it has read in its ring, from us by kernel, or where it must not.
    fn judge(&mut self, bytes: &[u8]) {
        self.strange.extend(bytes.iter().filter(|b| !ALPHABET.contains(b)));
    }

    /// Bytes behind our rings that are not what we put there: the victim has written outside of its ring.
    pub fn spoilt(&self) -> usize {
        let byte = |at| self.memory.ring_byte(self.behind(), 0, at).load(SeqCst);
        (0..self.memory.ring_size).filter(|at| byte(*at) != CANARY).count()
    }
}
