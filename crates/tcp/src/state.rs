//! A connection that the fast path carries.

use crate::ack::{Ack, AnswerLimit, FullSegment};
use crate::congestion::Congestion;
use crate::flight::Flight;
use crate::saved::{Agreed, Impossible, Progress, Saved};
use crate::timer::{self, Timed};
use crate::wire::frame::{Headers, Link, MixedFamilies};
use crate::{Seq, Tuple};

/// The memory of one connection that outlives the worker: the receive ring, and the record that holds [`Saved`].
///
/// The fast path calls it in the order that makes every moment safe. A worker that is killed between two stores has sent
/// nothing that the record does not tell.
pub trait Memory {
    /// Copies received bytes into the receive ring. `at`: the number of the first one. There is room: `at` and the end of the
    /// bytes lie between [`Progress::rcv_nxt`] and [`Progress::rcv_edge`]. Nobody may see them before `publish`.
    fn put(&mut self, at: Seq, bytes: &[u8]);

    /// Stores the state in the record, by stores of whole words ([`Progress::words`]) that no compiler moves: each with release.
    fn publish(&mut self, progress: &Progress);
}

/// What a connection is at one moment, but for [`Flight`]. A step computes the next value from it, and replaces it as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// What is published.
    pub progress: Progress,
    /// The acknowledgement that this end owes.
    pub ack: Ack,
    /// When unacknowledged data counts as lost; without any, when a window that is too small counts as closed.
    pub timeout: Option<u64>,
    /// The segment that measures the round trip.
    pub timed: Timed,
    /// Growth of the congestion window.
    pub congestion: Congestion,
    /// When [`Progress::ts_recent`] has arrived.
    pub ts_at: u64,
    /// Duplicate acknowledgements since the last one that was none.
    pub duplicates: u8,
    /// The end of the last segment sent that was not full (Minshall's variant of Nagle's algorithm).
    pub small_end: Seq,
    /// The size of the peer's full segments.
    pub full: FullSegment,
}

/// An established TCP connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) agreed: Agreed,
    pub(crate) headers: Headers,
    pub(crate) state: State,
    pub(crate) flight: Flight,
    pub(crate) answers: AnswerLimit,
    /// What the peer misses first, if the segment that has told so acknowledges bytes.
    pub(crate) missing: Option<Seq>,
}

/// A connection cannot be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The record is damaged.
    #[error("cannot go on with a connection")]
    Saved(#[from] Impossible),
    /// The tuple is none.
    #[error("cannot make the headers of a connection")]
    Tuple(#[from] MixedFamilies),
}

impl Connection {
    /// Goes on with a connection, taken from the kernel just now or left by another worker. `now`: microseconds of
    /// CLOCK_MONOTONIC, as in all calls.
    ///
    /// The caller first sets the position that the program may read to, to `rcv_nxt`, and the position that it may write
    /// behind, to `snd_una`: an earlier worker may have been killed after it had published these, and before it told the
    /// program.
    pub fn resume(saved: Saved, tuple: Tuple, link: &Link, now: u64) -> Result<Connection, ResumeError> {
        saved.check()?;
        let Saved { agreed, progress } = saved;
        let mut state = State {
            progress,
            // The earlier worker may have published an acknowledgement that it did not send.
            ack: Ack::Now,
            timeout: None,
            timed: Timed::Idle,
            congestion: Congestion::begun(now),
            ts_at: now,
            duplicates: 0,
            small_end: progress.snd_nxt,
            full: FullSegment::default(),
        };
        state.restart_timeout(now);
        Ok(Connection {
            agreed,
            headers: Headers::new(tuple, link)?,
            state,
            flight: Flight::inherited(progress.snd_una, progress.snd_nxt),
            answers: AnswerLimit::default(),
            missing: None,
        })
    }

    /// What is published.
    pub fn saved(&self) -> Saved {
        Saved { agreed: self.agreed, progress: self.state.progress }
    }

    /// Whose connection it is.
    pub fn tuple(&self) -> Tuple {
        self.headers.tuple()
    }

    /// When the caller calls [`Connection::next`] at the latest, though nothing else happens. `None`: no time is running.
    #[inline]
    pub fn deadline(&self) -> Option<u64> {
        match (self.state.timeout, self.state.ack.deadline()) {
            (Some(timeout), Some(ack)) => Some(timeout.min(ack)),
            (timeout, ack) => timeout.or(ack),
        }
    }
}

impl State {
    /// The timer runs from now, if anything is in flight (RFC 6298, sections 5.2 and 5.3).
    #[inline]
    pub fn restart_timeout(&mut self, now: u64) {
        self.timeout = None;
        if self.progress.in_flight() > 0 {
            self.start_timeout(now);
        }
    }

    /// The timer runs from now, if it does not run (RFC 6298, section 5.1).
    #[inline]
    pub fn start_timeout(&mut self, now: u64) {
        if self.timeout.is_none() {
            self.timeout = Some(now.saturating_add(timer::timeout(&self.progress)));
        }
    }
}
