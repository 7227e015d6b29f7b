//! Calls on a program's socket, by the executor of its domain.

use crate::carried::{Carried, NotCarried};
use crate::cause::Cause;
use crate::handover::{Unread, abandon, is_stranded};
use crate::pace::Pace;
use crate::process::this_thread;
use crate::program::Program;
use crate::record::Record;
use crate::stage::{Conn, Stage};
use crate::subject::{Declined, Subject, Terms};
use crate::timers::now;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use sidestep_abi::Reason;
use sidestep_broker::closing::Closing;
use sidestep_broker::domain::Key;
use sidestep_error::chain;
use sidestep_sys::tcp::traffic;

/// Microseconds after which a connection is given up to whose peer the kernel has no way.
const STRANDED: u64 = 120_000_000;

/// What is to be done with a connection.
pub enum Call {
    /// Send what its program has left in the ring, and, if it is time, see whether it can be taken.
    Look { is_time: bool },
    /// Ask how many bytes its socket has received.
    Count,
    /// Ask its program to enter the rings.
    Begin,
    /// Take it, if its program has entered them.
    Take,
    /// Give it back.
    GiveBack,
}

/// What a look has found.
pub enum Look {
    /// The program's bytes are not all sent.
    Left,
    /// Nothing has moved since the last look.
    NotYet,
    /// It can be taken.
    Ready,
}

/// What has come of a call.
pub enum Outcome {
    Looked(Result<Look, Cause>),
    /// None: the kernel does not tell.
    Counted(Option<u64>),
    /// Whether the program is asked now.
    Began(Result<bool, Cause>),
    /// Whether the connection is taken. It may be, and must go back: then there is a cause.
    Took(Result<bool, Cause>),
    /// None: it is stranded.
    Gave(Option<Box<Given>>),
}

/// A connection that has gone back to the kernel, or has ended.
pub struct Given {
    pub program: Program,
    pub record: Record,
    pub cause: Cause,
}

/// What an executor tells the worker.
pub enum Done {
    /// The broker's question has this answer; a socket that was declined is closed. `changes`: how many changes of paths the worker had
    /// heard of before.
    Examined { number: u64, domain: Key, changes: u64, examined: Result<Box<Subject>, Declined> },
    /// There was no room for the socket of this question, and it is closed.
    TurnedAway(u64, Reason),
    /// The stack had no need of a socket of this domain, which is closed.
    Discarded(Key),
    /// The connection comes back.
    Called(Box<Conn>, Outcome),
    /// The socket of a connection is closed: of this record, with this place in a link, and of this domain.
    Closed(u32, (u32, u32, u32), Box<Program>, Key),
}

/// Does it. `record`: the connection's.
pub fn run(mut conn: Box<Conn>, call: &Call, terms: &Terms, record: &Record) -> Done {
    record.set_caller(this_thread());
    let outcome = match call {
        Call::Look { is_time } => Outcome::Looked(look(&mut conn, *is_time, terms)),
        Call::Count => Outcome::Counted(traffic(conn.subject.socket.as_raw_fd()).map(|carried| carried.bytes[0])),
        Call::Begin => Outcome::Began(begin(&mut conn)),
        Call::Take => Outcome::Took(take(&mut conn, terms)),
        Call::GiveBack => Outcome::Gave(give_back(&mut conn).map(Box::new)),
    };
    record.set_caller(0);
    Done::Called(conn, outcome)
}

/// The stack has nothing to do with a connection any more: closes its socket, once that has what the program has left in its ring. A
/// program that is dead, or makes no call from now on, does not send that itself. `record`: where the keeper finds what is being sent,
/// should this process be killed meanwhile. It is free then.
pub fn close(program: &mut Program, record: &Record, socket: OwnedFd, closing: &mut Closing) {
    record.set_caller(this_thread());
    if !program.send_left(socket.as_fd(), Some(record)) && program.is_gone() {
        sidestep_sys::tcp::abort(socket.as_raw_fd()); // the stream must not seem complete
    }
    record.free();
    closing.close(socket);
}

fn look(conn: &mut Conn, is_time: bool, terms: &Terms) -> Result<Look, Cause> {
    let Stage::Assigned(program, record, _) = &mut conn.stage else { return Ok(Look::NotYet) };
    let socket = conn.subject.socket.as_fd();
    if !program.send_left(socket, Some(record)) {
        return Ok(Look::Left);
    }
    let asked = if is_time { traffic(socket.as_raw_fd()) } else { None };
    let Some(carried) = asked.filter(|carried| program.has_moved(carried)) else { return Ok(Look::NotYet) };
    if conn.pace.is_bulk(carried, terms.longest_message) {
        return Err(Cause::Bulk);
    }
    match conn.returns > 0 || conn.subject.is_stale {
        true => conn.subject.refresh(&terms.devices)?,
        false => conn.subject.check(&terms.devices)?,
    }
    Ok(Look::Ready)
}

fn begin(conn: &mut Conn) -> Result<bool, Cause> {
    let Stage::Diverted(program, ..) = &mut conn.stage else { return Ok(false) };
    program.begin(conn.subject.socket.as_fd())
}

fn take(conn: &mut Conn, terms: &Terms) -> Result<bool, Cause> {
    let (mut program, record, since) = match std::mem::replace(&mut conn.stage, Stage::Over) {
        Stage::Entering(program, record, since) => (program, record, since),
        other => {
            conn.stage = other;
            return Ok(false);
        }
    };
    let has_entered = program.has_entered(conn.subject.socket.as_fd());
    if !matches!(has_entered, Ok(true)) {
        conn.stage = Stage::Entering(program, record, since);
        return has_entered;
    }
    let (stage, result) = match Carried::take(program, record, &conn.subject, Pace::new(terms.longest_message), now()) {
        Ok(carried) => (Stage::Carried(Box::new(carried)), Ok(true)),
        Err(failed) => match *failed {
            NotCarried::Kernel(program, record, cause) => (Stage::Entering(*program, record, since), Err(cause)),
            NotCarried::Emptied(carried, cause) => (Stage::Carried(carried), Err(cause)),
        },
    };
    conn.stage = stage;
    result
}

fn give_back(conn: &mut Conn) -> Option<Given> {
    let (mut carried, cause, since) = match std::mem::replace(&mut conn.stage, Stage::Over) {
        Stage::Returning(carried, cause, since) => (carried, cause, since),
        other => {
            conn.stage = other;
            return None;
        }
    };
    let socket = conn.subject.socket.as_fd();
    let unread = if matches!(cause, Cause::Path | Cause::Device(_)) { Unread::InRing } else { Unread::ToKernel };
    let given = carried.give_back(socket, unread);
    let is_lost = match &given {
        Ok(()) => false,
        Err(error) if is_stranded(error) && now() < since + STRANDED && !matches!(cause, Cause::Ending) => {
            conn.stage = Stage::Returning(carried, cause, since);
            return None;
        }
        Err(error) => {
            tracing::error!("{}: {}", conn.subject.remote, chain(error));
            true
        }
    };
    let (mut program, record) = carried.into_parts();
    if is_lost {
        abandon(&mut program, socket);
    }
    Some(Given { program, record, cause: if is_lost { Cause::Left } else { cause } })
}
