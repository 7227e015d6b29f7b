//! What is known of a connection in memory that outlives the worker. The keeper gives the connection back by it.
//!
//! The worker stores each part before it relies on it: the parts of a stage before the stage, and the stage before it does what the
//! stage permits. So whenever the worker is killed, the keeper finds an upper bound of what has been done.
//! A call that a thread of the worker was in may be completed even later: the record says which thread.

use crate::layout::{ENDS, KEPT, QUEUE, SAVED, Words, room};
use crate::ledger::Ledger;
use serde::{Deserialize, Serialize};
use sidestep_repair::{Buffers, Saved, State};
use sidestep_tcp::{Progress, Seq};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// How far the worker has come with a connection. The parts of earlier stages stay valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// There is none.
    Free,
    /// The kernel carries it. Valid parts: [`Ends`].
    Assigned,
    /// It is being taken; the stack has carried nothing yet. Valid besides: [`Saved`].
    Taking,
    /// The stack carries it. Valid besides: [`Kept`], [`Progress`], and the bytes of the kernel's queue.
    Carried,
    /// It is being given back. Valid besides: [`Given`], and the sizes of the socket's buffers.
    Returning,
}

const STAGES: [Stage; 5] = [Stage::Free, Stage::Assigned, Stage::Taking, Stage::Carried, Stage::Returning];

/// The addresses of a connection, as its socket tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// A position of a byte stream beside its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub position: u64,
    pub seq: u32,
}

impl Origin {
    /// The position that belongs to `seq`, which lies at `near` or less than 2^31 bytes after it; before the origin: `near`.
    pub fn position_of(&self, seq: Seq, near: u64) -> u64 {
        let seq_of_near = self.seq.wrapping_add(near.wrapping_sub(self.position) as u32);
        near.wrapping_add(u64::from(seq.since_or_zero(Seq(seq_of_near))))
    }
}

/// What a connection was when the stack began to carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub state: State,
    /// Where the program's own bytes begin, behind those of the kernel's send queue.
    pub from_program: Origin,
    /// The first byte that the stack receives.
    pub to_program: Origin,
    /// Bytes of the kernel's send queue.
    pub queued: u32,
}

impl Kept {
    /// Bytes of the kernel's send queue that the peer has not acknowledged. `released`: [`Record::released`]. The sequence numbers
    /// alone do not tell this once 2^31 bytes of the program lie between them. But none of the program's bytes is released before
    /// all of the queue is acknowledged.
    pub fn unacknowledged(&self, released: u64, snd_una: Seq) -> u32 {
        let Origin { position, seq } = self.from_program;
        if released == position { Seq(seq).since_or_zero(snd_una).min(self.queued) } else { 0 }
    }
}

/// What the kernel is given, besides the bytes of its own queue that are still unacknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Bytes of the program's ring, from the first unacknowledged one on.
    pub from_program: u64,
    /// Bytes that the program no longer reads in the ring.
    pub unread: u64,
}

/// The record of one connection.
pub struct Record {
    ledger: Arc<Ledger>,
    pub number: u32,
}

impl Record {
    /// The record of this number, which the ledger has.
    pub fn new(ledger: Arc<Ledger>, number: u32) -> Record {
        Record { ledger, number }
    }

    fn words(&self) -> &Words {
        self.ledger.words(self.number)
    }

    pub fn stage(&self) -> Stage {
        STAGES.get(self.words().stage.load(Acquire) as usize).copied().unwrap_or(Stage::Free)
    }

    fn enter(&self, stage: Stage) {
        self.words().stage.store(stage as u32, Release);
    }

    /// A connection begins. The keeper has its socket.
    pub fn assign(&self, ends: &Ends) {
        self.end_sending();
        self.write(ENDS, ends);
        self.enter(Stage::Assigned);
    }

    /// It is being taken.
    pub fn begin_taking(&self, saved: &Saved) {
        self.write(SAVED, saved);
        self.enter(Stage::Taking);
    }

    /// From now on the stack carries it. `queue`: the bytes of the kernel's send queue, at most
    /// [`QUEUE_ROOM`](crate::layout::QUEUE_ROOM).
    pub fn carry(&self, kept: &Kept, progress: &Progress, queue: &[u8]) {
        self.write(KEPT, kept);
        self.ledger.write(self.number, QUEUE, queue);
        self.publish(progress);
        self.set_released(kept.from_program.position);
        self.set_published(kept.to_program.position);
        self.enter(Stage::Carried);
    }

    /// How far the connection has come.
    pub fn publish(&self, progress: &Progress) {
        for (word, value) in self.words().progress.iter().zip(progress.words()) {
            word.store(value, Release);
        }
    }

    pub fn set_released(&self, position: u64) {
        self.words().released.store(position, Relaxed);
    }

    pub fn set_published(&self, position: u64) {
        self.words().published.store(position, Relaxed);
    }

    /// It is being given back.
    pub fn begin_returning(&self, given: Given, buffers: Buffers) {
        let [from_program, unread] = &self.words().given;
        from_program.store(given.from_program, Relaxed);
        unread.store(given.unread, Relaxed);
        for (word, value) in self.words().buffers.iter().zip(buffers.words()) {
            word.store(value, Relaxed);
        }
        self.enter(Stage::Returning);
    }

    /// Bytes that the program has left in its ring are about to be sent by kernel, from this position on. `written`: how many bytes the
    /// kernel has got from anybody.
    pub fn begin_sending(&self, position: u64, written: u64) {
        let [from, before] = &self.words().sending;
        before.store(written, Relaxed);
        from.store(position.wrapping_add(1), Release);
    }

    /// The program finds how many were sent.
    pub fn end_sending(&self) {
        self.words().sending[0].store(0, Release);
    }

    /// The stack has nothing to do with the connection any more.
    pub fn free(&self) {
        self.set_caller(0);
        self.enter(Stage::Free);
    }

    /// This thread makes calls on the connection's socket from now on. One of them may be completed after the process was killed. 0: no
    /// thread does.
    pub fn set_caller(&self, thread: u32) {
        self.words().caller.store(thread, Release);
    }

    // --- for the keeper --------------------------------------------------------------------------------------------------------

    pub fn caller(&self) -> u32 {
        self.words().caller.load(Acquire)
    }

    pub fn ends(&self) -> Option<Ends> {
        self.read(ENDS)
    }

    pub fn saved(&self) -> Option<Saved> {
        self.read(SAVED)
    }

    pub fn kept(&self) -> Option<Kept> {
        self.read(KEPT)
    }

    pub fn progress(&self) -> Progress {
        Progress::from_words(std::array::from_fn(|n| self.words().progress[n].load(Acquire)))
    }

    pub fn released(&self) -> u64 {
        self.words().released.load(Relaxed)
    }

    pub fn published(&self) -> u64 {
        self.words().published.load(Relaxed)
    }

    pub fn given(&self) -> Given {
        let [from_program, unread] = self.words().given.each_ref().map(|word| word.load(Relaxed));
        Given { from_program, unread }
    }

    /// Before the give-back.
    pub fn buffers(&self) -> Buffers {
        Buffers::from_words(self.words().buffers.each_ref().map(|word| word.load(Relaxed)))
    }

    /// What [`Record::begin_sending`] was told, if the bytes may not all be sent.
    pub fn sending(&self) -> Option<(u64, u64)> {
        let [from, before] = &self.words().sending;
        let position = from.load(Acquire).checked_sub(1)?;
        Some((position, before.load(Relaxed)))
    }

    /// The last `len` bytes of the kernel's queue of `queued` bytes.
    pub fn queue(&self, queued: u32, len: u32) -> Vec<u8> {
        let (queued, len) = (queued as usize, len.min(queued) as usize);
        self.ledger.read(self.number, QUEUE + queued - len, len)
    }

    /// A part is its length and its text.
    fn write(&self, at: usize, part: &impl Serialize) {
        let text = serde_json::to_vec(part).expect("numbers and addresses have a text");
        assert!(text.len() + 4 <= room(at), "the text of a part of a record is at most as long as its room");
        self.ledger.write(self.number, at + 4, &text);
        self.ledger.write(self.number, at, &(text.len() as u32).to_ne_bytes());
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, at: usize) -> Option<T> {
        let len = u32::from_ne_bytes(self.ledger.read(self.number, at, 4).try_into().ok()?) as usize;
        if len + 4 > room(at) {
            return None;
        }
        serde_json::from_slice(&self.ledger.read(self.number, at + 4, len)).ok()
    }
}

/// Takes the free ones out of a list of records, and returns them.
pub fn freed(ledger: &Arc<Ledger>, used: &mut Vec<u32>) -> Vec<u32> {
    used.extract_if(.., |number| Record::new(ledger.clone(), *number).stage() == Stage::Free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_repair::{Keepalive, Names, Scales, TimestampClock, Window};

    fn ends() -> Ends {
        let longest = "[1111:2222:3333:4444:5555:6666:7777:8888]:65535";
        Ends { local: longest.parse().expect("an address"), remote: longest.parse().expect("an address") }
    }

    /// All numbers as long as they can be.
    fn kept() -> Kept {
        let most = u32::MAX;
        let keepalive = Some(Keepalive { idle: most, interval: most, count: most });
        let saved = Saved {
            names: Names { local: ends().local, remote: ends().remote },
            reuse_address: false,
            keepalive,
            window_clamp: most,
            rto_min_us: Some(most),
            delack_max_us: Some(most),
        };
        let window = Window { snd_wl1: most, snd_wnd: most, max_window: most, rcv_wnd: most, rcv_wup: most };
        let state = State {
            local: ends().local,
            remote: ends().remote,
            snd_una: most,
            snd_nxt: most,
            rcv_nxt: most,
            window,
            mss: most,
            scales: Some(Scales { send: 255, receive: 255 }),
            sack: false,
            timestamps: Some(TimestampClock { offset: most }),
            saved,
        };
        let origin = Origin { position: u64::MAX, seq: most };
        Kept { state, from_program: origin, to_program: origin, queued: 3 }
    }

    #[test]
    fn the_keeper_reads_what_the_worker_wrote() {
        let ledger = Ledger::create(3).expect("a ledger");
        let again = Ledger::open(rustix::io::dup(ledger.file()).expect("dup")).expect("the same ledger");
        let (written, read) = (Record::new(Arc::new(ledger), 1), Record::new(Arc::new(again), 1));
        assert_eq!((read.stage(), read.ends()), (Stage::Free, None));

        written.assign(&ends());
        assert_eq!((read.stage(), read.ends()), (Stage::Assigned, Some(ends())));

        let kept = kept();
        written.begin_taking(&kept.state.saved);
        assert_eq!((read.stage(), read.saved()), (Stage::Taking, Some(kept.state.saved)));

        let progress = Progress::from_words(std::array::from_fn(|n| n as u64));
        written.carry(&kept, &progress, b"abc");
        assert_eq!((read.stage(), read.kept(), read.progress()), (Stage::Carried, Some(kept), progress));
        assert_eq!((read.queue(3, 2), read.queue(3, 9)), (b"bc".to_vec(), b"abc".to_vec()));

        let (given, buffers) = (Given { from_program: 5, unread: 6 }, Buffers::from_words([7 << 32 | 8, 9]));
        written.set_caller(77);
        written.begin_returning(given, buffers);
        assert_eq!((read.stage(), read.given(), read.buffers()), (Stage::Returning, given, buffers));
        assert_eq!(read.caller(), 77);
        written.free();
        assert_eq!((read.stage(), read.caller()), (Stage::Free, 0));
    }

    /// A worker finds two connections of an earlier one. Their records are the worker's as the connections go back.
    #[test]
    fn records_of_connections_that_go_back_become_free() {
        let ledger = Arc::new(Ledger::create(9).expect("a ledger"));
        let records = [2, 5, 7].map(|number| Record::new(ledger.clone(), number));
        records.iter().for_each(|record| record.assign(&ends()));
        records[1].free();
        let mut used = ledger.touched().expect("records in use");
        assert_eq!((freed(&ledger, &mut used), &*used), (vec![5], &[2, 7][..]));
        assert!(freed(&ledger, &mut used).is_empty());
        records[2].free();
        assert_eq!((freed(&ledger, &mut used), &*used), (vec![7], &[2][..]));
    }

    #[test]
    fn the_kernels_queue_is_acknowledged_before_the_programs_bytes() {
        let from_program = Origin { position: 1000, seq: u32::MAX };
        let (kept, begin) = (Kept { from_program, ..kept() }, Seq(from_program.seq));
        for left in 0..=3 {
            assert_eq!(kept.unacknowledged(1000, begin.minus(left)), left);
        }
        assert_eq!(kept.unacknowledged(1000, begin.plus(7)), 0, "published, and not released yet");
        for n in [1, (1 << 31) - 1, 1 << 31, (1 << 31) + 5, u32::MAX] {
            assert_eq!(kept.unacknowledged(1000 + u64::from(n), begin.plus(n)), 0, "after {n} bytes of the program");
        }
        assert_eq!(kept.unacknowledged(1000 + (1 << 32), begin), 0);
    }

    #[test]
    fn a_position_follows_its_sequence_number_over_every_wrap() {
        let origin = Origin { position: 1000, seq: u32::MAX - 10 };
        assert_eq!(origin.position_of(Seq(u32::MAX - 10), 1000), 1000);
        assert_eq!(origin.position_of(Seq(4), 1000), 1015);
        assert_eq!(origin.position_of(Seq(u32::MAX - 20), 1000), 1000, "before the origin are the kernel's own bytes");
        let far = 1000 + (7 << 32) + 40;
        assert_eq!(origin.position_of(Seq(29 + 5), far), far + 5);
        assert_eq!(origin.position_of(Seq(29), far), far);
    }
}
