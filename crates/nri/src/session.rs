//! One connection to the runtime, from registration to its end.
//!
//! ```text
//!  plugin                          runtime
//!    |-- RegisterPlugin -------------->|   connection 2: the plugin calls
//!    |<------------------- answer -----|
//!    |<------------------ Configure ---|   connection 1: the runtime calls, one request after the other, or several at a time
//!    |<---------------- Synchronize ---|
//!    |<------------ CreateContainer ---|
//! ```
//!
//! One thread reads, answers and writes. So a request waits for those before it, of which each takes less than a millisecond.

use crate::api::{Empty, RUNTIME_SERVICE, RegisterPluginRequest};
use crate::metrics::Metrics;
use crate::mux::{self, Frame, FrameError};
use crate::plugin::Plugin;
use crate::ttrpc::{Kind, Message, MessageError, Messages, Request, Response};
use prost::{DecodeError, Message as _};
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The plugin's name, as the runtime logs it.
const NAME: &str = "sidestep";
/// The runtime gives a plugin five seconds to register, and itself answers sooner.
const REGISTRATION: Duration = Duration::from_secs(5);
/// Time for the rest of a frame that has begun, and for a write.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks for the file of enrolled namespaces, while it is missing.
const LOOK: Duration = Duration::from_secs(1);
/// The stream of the only call that the plugin makes.
const REGISTRATION_STREAM: u32 = 1;

/// Why a connection has ended. A runtime that ends does not fail: it is `Closed`.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum SessionError {
    #[error("the runtime has closed the connection")]
    Closed,
    #[error(
        "the file of enrolled namespaces is there now: the plugin connects again, to be told of the containers that were created before"
    )]
    Enrolled,
    #[error("the runtime refuses the plugin: {0}")]
    Refused(String),
    #[error("the runtime does not speak NRI's protocol")]
    Frame(#[from] FrameError),
    #[error("the runtime does not speak ttrpc on connection {connection}")]
    Message { connection: u32, source: MessageError },
    #[error("the runtime's message cannot be decoded")]
    Decode(#[from] DecodeError),
    #[error("cannot write to the connection")]
    Write(#[source] io::Error),
    #[error("cannot prepare the connection")]
    Prepare(#[source] io::Error),
}

/// A connection to the runtime.
pub struct Session<'a> {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    calls: Messages,
    answers: Messages,
    plugin: &'a mut Plugin,
    metrics: &'a Metrics,
    is_registered: bool,
}

impl<'a> Session<'a> {
    /// `index`: two digits, in the order of which the runtime asks its plugins.
    pub fn begin(
        stream: UnixStream,
        index: &str,
        plugin: &'a mut Plugin,
        metrics: &'a Metrics,
    ) -> Result<Session<'a>, SessionError> {
        stream.set_write_timeout(Some(PATIENCE)).map_err(SessionError::Prepare)?;
        let reader = BufReader::new(stream.try_clone().map_err(SessionError::Prepare)?);
        let (calls, answers) = (Messages::default(), Messages::default());
        let mut session = Session { reader, writer: stream, calls, answers, plugin, metrics, is_registered: false };
        session.register(index)?;
        Ok(session)
    }

    /// Answers requests until the connection ends.
    pub fn serve(mut self) -> SessionError {
        let error = loop {
            if let Err(error) = self.step() {
                break error;
            }
        };
        if self.is_registered {
            self.metrics.set_connected(false);
        }
        error
    }

    fn register(&mut self, index: &str) -> Result<(), SessionError> {
        let request = Request {
            service: RUNTIME_SERVICE.into(),
            method: "RegisterPlugin".into(),
            payload: RegisterPluginRequest { plugin_name: NAME.into(), plugin_idx: index.into() }.encode_to_vec(),
            timeout: REGISTRATION.as_nanos() as i64,
        };
        self.send(mux::RUNTIME, &Message::request(REGISTRATION_STREAM, &request))
    }

    fn send(&mut self, connection: u32, message: &Message) -> Result<(), SessionError> {
        mux::send(&mut self.writer, connection, &message.encode()).map_err(SessionError::Write)
    }

    fn step(&mut self) -> Result<(), SessionError> {
        let Frame { connection, bytes } = self.receive()?;
        let messages = match connection {
            mux::PLUGIN => &mut self.calls,
            mux::RUNTIME => &mut self.answers,
            // Nobody listens there.
            _ => return Ok(()),
        };
        messages.push(&bytes);
        while let Some(message) = self.next(connection)? {
            match (connection, message.kind) {
                (mux::PLUGIN, Kind::Request) => self.answer(&message)?,
                (mux::RUNTIME, Kind::Response) => self.registered(&message)?,
                // Not an answer to a call of ours, or no call to us.
                _ => {}
            }
        }
        Ok(())
    }

    fn next(&mut self, connection: u32) -> Result<Option<Message>, SessionError> {
        let messages = if connection == mux::PLUGIN { &mut self.calls } else { &mut self.answers };
        messages.pop().map_err(|source| SessionError::Message { connection, source })
    }

    /// Waits as long as it takes for a frame to begin once the runtime has accepted the plugin, and not long for its rest.
    fn receive(&mut self) -> Result<Frame, SessionError> {
        if !self.is_registered {
            self.fill(Some(REGISTRATION))?;
        }
        while self.is_registered {
            // Only the runtime can name the containers again about which the plugin has been wrong.
            if self.plugin.namespaces.have_come() {
                return Err(SessionError::Enrolled);
            }
            if self.fill(self.plugin.namespaces.has_missed().then_some(LOOK))? {
                break;
            }
        }
        self.limit_reads(Some(PATIENCE))?;
        mux::receive(&mut self.reader)?.ok_or(SessionError::Closed)
    }

    /// Whether something is in the buffer, or an error, which comes again with the next read.
    fn fill(&mut self, limit: Option<Duration>) -> Result<bool, SessionError> {
        self.limit_reads(limit)?;
        let filled = self.reader.fill_buf();
        Ok(!matches!(filled, Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)))
    }

    fn limit_reads(&self, limit: Option<Duration>) -> Result<(), SessionError> {
        self.writer.set_read_timeout(limit).map_err(SessionError::Prepare)
    }

    fn answer(&mut self, message: &Message) -> Result<(), SessionError> {
        let begun = Instant::now();
        let request = Request::decode(&message.content[..])?;
        let response = self.plugin.answer(&request);
        self.metrics.answered(begun.elapsed());
        self.send(mux::PLUGIN, &Message::response(message.stream, &response))
    }

    fn registered(&mut self, message: &Message) -> Result<(), SessionError> {
        if message.stream != REGISTRATION_STREAM || self.is_registered {
            return Ok(());
        }
        let response = Response::decode(&message.content[..])?;
        if let Some(status) = response.status.filter(|status| status.code != 0) {
            return Err(SessionError::Refused(status.message));
        }
        Empty::decode(&response.payload[..])?;
        self.is_registered = true;
        self.metrics.set_connected(true);
        Ok(())
    }
}
