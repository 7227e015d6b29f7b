//! Two fast paths on a wire: each byte arrives once and in order, or an end gives its connection back, with all that is needed.
#![allow(dead_code)] // each target uses its part

use crate::input::Input;
use crate::tcp_end::{Did, End, Wire};
use sidestep_tcp::{Agreed, Back, Progress, Saved, Seq, Tuple};

/// What may happen beside the regular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    Peace,
    /// Workers are killed at any store.
    Kills,
    /// Frames are lost, doubled, reordered and damaged, and workers are killed.
    War,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything arrived.
    Complete {
        /// Bytes that arrived.
        bytes: u32,
        /// Workers that were killed.
        kills: u32,
    },
    /// An end gave the connection back.
    Returned {
        /// Why.
        why: Back,
        /// Workers that were killed before.
        kills: u32,
    },
}

struct Pair {
    ends: [End; 2],
    /// To each end.
    wires: [Wire; 2],
    first: [Seq; 2],
    now: u64,
    kills: u32,
}

/// Runs the choices in `data`.
pub fn run(data: &[u8], trouble: Trouble) -> Ending {
    let mut input = Input::new(data);
    let mut pair = Pair::new(&mut input);
    while !input.is_empty() {
        if let Some(why) = pair.step(&mut input, trouble) {
            return pair.returned(why, trouble);
        }
        pair.check();
    }
    pair.finish(trouble)
}

impl Pair {
    fn new(input: &mut Input) -> Pair {
        let options = input.byte();
        let first = [Seq(input.word() as u32), Seq(u32::MAX - u32::from(input.byte()))];
        let scale = [input.byte() % 5, input.byte() % 5];
        let size = [2048 << input.below(4), 2048 << input.below(4)];
        let mss = [100 + 10 * u32::from(input.byte() % 135), 1448][usize::from(options >> 7)];
        let ssthresh = [i32::MAX as u32, u32::from(input.byte() % 20)][usize::from(options >> 6 & 1)];
        let addresses =
            if options & 32 == 0 { ["192.0.2.1:1", "192.0.2.2:2"] } else { ["[2001:db8::1]:1", "[2001:db8::2]:2"] };
        let [one, two] = addresses.map(|address| address.parse().expect("an address"));
        let now = u64::from(input.byte()) << 20;
        let end = |me: usize| {
            let you = 1 - me;
            let agreed = Agreed {
                send_ring: 4096,
                receive_ring: size[me],
                mss,
                timestamp_offset: input_offset(options),
                send_scale: scale[you],
                receive_scale: scale[me],
                options: u16::from(options & 7),
            };
            let window = |of: usize| (size[of] >> scale[of]) << scale[of];
            let progress = Progress {
                snd_una: first[me],
                snd_nxt: first[me],
                snd_edge: first[me].plus(window(you)),
                snd_wl1: first[you],
                max_window: window(you),
                rcv_nxt: first[you],
                rcv_edge: first[you].plus(window(me)),
                rcv_acked: first[you],
                cwnd: 1 + u32::from(options >> 3 & 3) * 5,
                ssthresh,
                ..Progress::default()
            };
            let tuple = Tuple::new(one, two);
            End::new(me as u8, Saved { agreed, progress }, if me == 0 { tuple } else { tuple.reversed() }, now)
        };
        Pair { ends: [end(0), end(1)], wires: [Wire::new(), Wire::new()], first, now, kills: 0 }
    }

    /// One choice. `Some`: an end gives the connection back.
    fn step(&mut self, input: &mut Input, trouble: Trouble) -> Option<Back> {
        let kind = input.byte();
        let me = usize::from(kind >> 7);
        match kind & 31 {
            0..=5 => self.ends[me].write(u32::from(input.byte()) << (kind >> 5 & 3)),
            6..=11 => self.ends[me].read(u32::from(input.byte()) << (kind >> 4 & 7)),
            12..=17 => return self.send(me),
            18..=26 => return self.deliver(me),
            27 => {
                return self.pass(u64::from(input.byte()) * 1000);
            }
            28 if trouble != Trouble::Peace && input.below(4) == 0 => {
                let stores = if kind & 32 == 0 { input.below(32) } else { 8 * input.below(256) };
                self.ends[me].store.kill_after(stores as u32, input.below(7), input.below(6));
            }
            29 if trouble == Trouble::War && input.below(4) == 0 => self.disturb(me, input),
            _ => self.now += u64::from(input.byte()),
        }
        None
    }

    fn send(&mut self, me: usize) -> Option<Back> {
        // A program that reads nothing for long closes the window, and there the fast path ends.
        self.ends[me].read_if_full();
        let did = self.ends[me].send(self.now, &mut self.wires[1 - me]);
        self.after(me, did)
    }

    fn deliver(&mut self, me: usize) -> Option<Back> {
        let frame = self.wires[me].pop_front()?;
        let did = self.ends[me].receive(&frame, self.now);
        if did == Did::Died {
            // The ring of the device still holds it.
            self.wires[me].push_front(frame);
        }
        self.after(me, did)
    }

    fn after(&mut self, me: usize, did: Did) -> Option<Back> {
        match did {
            Did::Well => None,
            Did::Died => {
                self.kills += 1;
                self.ends[me].restore(self.now);
                None
            }
            Did::Returned(why) => Some(why),
        }
    }

    /// Both ends send, receive and read until nothing is under way.
    fn settle(&mut self) -> Option<Back> {
        for _ in 0..1000 {
            for me in [0, 1] {
                self.ends[me].read(u32::MAX);
                if let Some(why) = self.send(me) {
                    return Some(why);
                }
            }
            if self.wires.iter().all(Wire::is_empty) {
                return None;
            }
            for me in [0, 1] {
                while !self.wires[me].is_empty() {
                    if let Some(why) = self.deliver(me) {
                        return Some(why);
                    }
                }
            }
        }
        panic!("two ends send to each other for ever");
    }

    /// Time passes, and both ends do what is due in it.
    fn pass(&mut self, micros: u64) -> Option<Back> {
        let end = self.now + micros;
        loop {
            if let Some(why) = self.settle() {
                return Some(why);
            }
            if self.now >= end {
                return None;
            }
            let due = self.ends.iter().filter_map(|end| end.connection.deadline()).min().unwrap_or(end);
            self.now = due.clamp(self.now + 1, end);
        }
    }

    fn disturb(&mut self, me: usize, input: &mut Input) {
        let wire = &mut self.wires[me];
        if wire.is_empty() {
            return;
        }
        let (one, other) = (input.below(256) % wire.len(), input.below(256) % wire.len());
        match input.below(4) {
            0 => drop(wire.remove(one)),
            1 => wire.insert(other, wire[one].clone()),
            2 => wire.swap(one, other),
            _ => {
                let at = usize::from(input.byte()) % wire[one].len();
                wire[one][at] ^= 1 << input.below(8);
            }
        }
    }

    /// What holds at any time, for both directions.
    fn check(&self) {
        for (me, you) in [(0, 1), (1, 0)] {
            let (sender, receiver) = (&self.ends[me], &self.ends[you]);
            let (sent, received) = (sender.store.progress(), receiver.store.progress());
            assert!(!sent.snd_una.is_after(received.rcv_nxt), "acknowledged, but not received");
            assert!(!received.rcv_nxt.is_after(sent.snd_nxt), "received, but not sent");
            assert!(!sender.sent.is_after(receiver.promised), "sent beyond the window");
            assert!(!sent.snd_nxt.is_after(sender.positions.written), "sent, but not written");
        }
    }

    fn returned(&mut self, why: Back, trouble: Trouble) -> Ending {
        self.check();
        self.ends.iter_mut().for_each(End::check_whole);
        // Without loss there are a program that does not read, and a peer that was not given time to answer.
        let is_expected = matches!(why, Back::ZeroWindow | Back::SmallWindow | Back::Timeout);
        assert!(trouble != Trouble::Peace || is_expected, "{why}");
        // A worker that is killed before it sends a segment loses it.
        let is_loss = is_expected || matches!(why, Back::Gap | Back::DuplicateAcks);
        assert!(trouble == Trouble::War || is_loss, "{why}");
        Ending::Returned { why, kills: self.kills }
    }

    /// Everything that was written arrives, within the time that acknowledgements may take.
    fn finish(&mut self, trouble: Trouble) -> Ending {
        for end in &mut self.ends {
            end.store.revive();
        }
        if let Some(why) = self.pass(10_000_000) {
            return self.returned(why, trouble);
        }
        self.check();
        for (me, you) in [(0, 1), (1, 0)] {
            let written = self.ends[me].positions.written;
            assert_eq!(self.ends[you].positions.read, written, "every byte has been read");
            assert_eq!(self.ends[me].store.progress().snd_una, written, "every byte is acknowledged");
            assert_eq!(self.ends[me].connection.deadline(), None, "nothing is owed");
        }
        let bytes = |me: usize| self.ends[me].positions.written.since(self.first[me]);
        Ending::Complete { bytes: bytes(0) + bytes(1), kills: self.kills }
    }
}

/// A clock that wraps soon, or one that does not.
fn input_offset(options: u8) -> u32 {
    if options & 1 == 0 { 0 } else { u32::MAX - 3 }
}
