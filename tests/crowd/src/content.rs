//! What a direction of a connection carries: its bytes are a function of seed, connection, direction and position.

use sidestep_posix::pattern::Pattern;

/// Threads that write records to one connection, at most.
pub const WRITERS: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// One stream.
    Bytes,
    /// Records of so many bytes, by several threads in any order: the number of the thread, then bytes of its own stream.
    Records { threads: u64, size: u64 },
}

/// One direction.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    content: Content,
    /// Number of its first pattern.
    first: u64,
}

/// Numbers of patterns that a run may use.
const PATTERNS: u64 = 4095;

impl Stream {
    /// Streams of a run differ; those of another seed have other numbers.
    pub fn new(content: Content, seed: u64, connection: u32, from_client: bool) -> Stream {
        let number = u64::from(connection) * 2 + u64::from(from_client);
        Stream { content, first: seed % PATTERNS + number * WRITERS }
    }

    pub fn pattern(self, thread: u64) -> Pattern {
        Pattern::new(1 + (self.first + thread) % PATTERNS)
    }

    /// Record `index` of a thread.
    pub fn record(self, thread: u64, index: u64, size: u64) -> Vec<u8> {
        let body = self.pattern(thread).bytes(index * (size - 1), size as usize - 1);
        [&[thread as u8][..], &body].concat()
    }
}

/// A direction as its reader has it.
#[derive(Clone)]
pub struct Checked {
    stream: Stream,
    /// How many bytes came.
    pub at: u64,
    /// The thread whose record is being read, and how many bytes came of each thread's stream.
    thread: u64,
    of_thread: [u64; WRITERS as usize],
}

impl Checked {
    pub fn new(stream: Stream) -> Checked {
        Checked { stream, at: 0, thread: 0, of_thread: [0; WRITERS as usize] }
    }

    /// The next bytes. Err: they are not those that were sent.
    pub fn arrived(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self.stream.content {
            Content::Bytes => {
                self.stream.pattern(0).check(self.at, bytes)?;
                self.at += bytes.len() as u64;
                Ok(())
            }
            Content::Records { threads, size } => self.records(bytes, threads, size),
        }
    }

    fn records(&mut self, mut rest: &[u8], threads: u64, size: u64) -> Result<(), String> {
        while !rest.is_empty() {
            let within = self.at % size;
            let n = if within == 0 { 1 } else { (size - within).min(rest.len() as u64) };
            let (now, later) = rest.split_at(n as usize);
            if within == 0 {
                self.thread = now[0].into();
                if self.thread >= threads {
                    return Err(format!(
                        "at byte {}, where a record must begin, is the middle of one: it was torn",
                        self.at
                    ));
                }
            } else {
                let at = &mut self.of_thread[self.thread as usize];
                let told = |what| format!("byte {} of all, record of thread {}: {what}", self.at, self.thread);
                self.stream.pattern(self.thread).check(*at, now).map_err(told)?;
                *at += n;
            }
            (self.at, rest) = (self.at + n, later);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_pass_in_any_order_of_threads_and_at_any_cut() {
        let stream = Stream::new(Content::Records { threads: 2, size: 10 }, 7, 3, true);
        let all: Vec<u8> =
            [(0, 0), (1, 0), (1, 1), (0, 1)].iter().flat_map(|(t, i)| stream.record(*t, *i, 10)).collect();
        for cut in 1..all.len() {
            let mut checked = Checked::new(stream);
            assert_eq!(all.chunks(cut).try_for_each(|piece| checked.arrived(piece)), Ok(()));
            assert_eq!(checked.at, 40);
        }
    }

    #[test]
    fn a_torn_record_is_found() {
        let stream = Stream::new(Content::Records { threads: 2, size: 10 }, 7, 3, true);
        let (one, other) = (stream.record(0, 0, 10), stream.record(1, 0, 10));
        let torn = [&one[..4], &other, &one[4..]].concat();
        assert!(Checked::new(stream).arrived(&torn).is_err());
    }

    #[test]
    fn a_lost_byte_is_found() {
        let stream = Stream::new(Content::Bytes, 7, 3, false);
        let bytes = stream.pattern(0).bytes(0, 100);
        assert!(Checked::new(stream).arrived(&[&bytes[..50], &bytes[51..]].concat()).is_err());
    }
}
