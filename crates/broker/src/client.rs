//! The client of a broker: programs ask a broker to stay; its operator asks for the status, detaches and attaches.

use crate::broker::hold::Scope;
use crate::listen::Address;
use crate::operator;
use crate::status::Status;
use crate::wire::{self, Incoming};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::Timespec;
use sidestep_abi::VERSION;
use sidestep_abi::msg::{Kind, Msg};
use std::fs::File;
use std::io::{self, Read};

/// Longest wait for an answer. A broker answers within milliseconds, unless it is stopped.
const ANSWER_SECONDS: i64 = 5;

/// Most bytes of a status: far more than a broker lists.
const LONGEST_STATUS: u64 = 64 << 20;

/// Why a broker cannot be asked, or has not answered.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum ClientError {
    #[error("no broker runs at {0}; `sidestep run` starts one")]
    NotRunning(Address),
    /// A process of this user serves the address, and the caller must not trust that user.
    #[error("{0} is held by a process of user {1}, which is neither you nor root: not used")]
    OtherUser(Address, u32),
    /// The broker speaks this version.
    #[error(
        "the broker speaks version {0} of the protocol, this program version {VERSION}; \
         stop the old broker (it restarts on demand) or use the programs of one release"
    )]
    Version(u64),
    /// Only the broker's user and root may send this.
    #[error("only root and user {0}, who runs the broker, may query it")]
    NotAllowed(u32),
    /// The broker runs, but has no operator's socket in any directory where we look.
    #[error(
        "a broker of user {uid} serves {at}, but its operator's socket is not here ({}): run this command where \
         the broker was started, with the address that it was started with",
        directories(*uid)
    )]
    NoOperator { at: Address, uid: u32 },
    /// There is no such process or connection.
    #[error("the broker has no process or connection of that name; see `sidestep status`")]
    Unknown,
    /// The other end closed the connection without an answer: a broker that is ending, or no broker.
    #[error("the process that listens at {0} closes connections without an answer")]
    HungUp(Address),
    /// The other end does not answer, or not as a broker does.
    #[error("the process that listens at {0} sent an invalid answer: it may not be a broker")]
    Silent(Address),
    #[error("cannot talk to the broker")]
    Io(#[source] io::Error),
}

fn directories(uid: u32) -> String {
    operator::directories(uid).iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl From<Errno> for ClientError {
    fn from(e: Errno) -> ClientError {
        ClientError::Io(e.into())
    }
}

/// A connection to a broker that this user may trust.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    address: Address,
    broker_uid: u32,
}

impl Client {
    /// Connects to the members' socket.
    pub fn connect(address: &Address) -> Result<Client, ClientError> {
        let socket = address.connect().map_err(|e| match e {
            Errno::CONNREFUSED | Errno::NOENT => ClientError::NotRunning(address.clone()),
            // The broker is stopped, and its backlog is full.
            Errno::AGAIN => ClientError::Silent(address.clone()),
            e => e.into(),
        })?;
        let broker_uid = crate::users::peer_of(&socket).map_err(ClientError::Io)?.uid;
        let own = rustix::process::geteuid().as_raw();
        // Root may name the broker of another user. Its default address any user can hold, so that root would ask a stranger.
        let may_be_anybody_s = own == 0 && *address != Address::of_this_user();
        if broker_uid != 0 && broker_uid != own && !may_be_anybody_s {
            return Err(ClientError::OtherUser(address.clone(), broker_uid));
        }
        Ok(Client { socket, address: address.clone(), broker_uid })
    }

    /// Asks the broker to stay while this process lives. Also checks that it speaks our version.
    pub fn stay(&self) -> Result<(), ClientError> {
        match self.ask(Msg::new(Kind::Stay)) {
            // The broker of another user, which stays for its own members.
            Ok(_) | Err(ClientError::NotAllowed(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn ask(&self, question: Msg) -> Result<(Msg, Option<OwnedFd>), ClientError> {
        wire::send(self.socket.as_fd(), &question, None).map_err(|e| match e {
            Errno::PIPE | Errno::CONNRESET => ClientError::HungUp(self.address.clone()),
            e => e.into(),
        })?;
        let mut readable = [PollFd::new(&self.socket, PollFlags::IN)];
        let patience = Timespec { tv_sec: ANSWER_SECONDS, tv_nsec: 0 };
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut readable, Some(&patience)))?;
        let answer = match wire::receive(self.socket.as_fd()) {
            Incoming::Record(answer) => answer,
            Incoming::End => return Err(ClientError::HungUp(self.address.clone())),
            _ => return Err(ClientError::Silent(self.address.clone())),
        };
        match answer.msg.kind() {
            Some(Kind::Reject) => Err(ClientError::Version(answer.msg.arg)),
            Some(Kind::Unknown) if answer.msg.arg != 0 => Err(ClientError::NotAllowed(self.broker_uid)),
            Some(Kind::Unknown) => Err(ClientError::Unknown),
            Some(Kind::Done) => Ok((answer.msg, answer.fd)),
            _ => Err(ClientError::Silent(self.address.clone())),
        }
    }
}

/// A connection to the operator's socket of a broker.
#[derive(Debug)]
pub struct Operator(Client);

impl Operator {
    /// Connects to the operator's socket of the broker whose members use this address.
    pub fn connect(address: &Address) -> Result<Operator, ClientError> {
        let client = Client::connect(address)?;
        let found = operator::find(&client.address, client.broker_uid).or_else(|| {
            // A service manager may start the broker just now. A broker that answers has its operator's socket; any other answer
            // leaves things as they are.
            let _ = client.stay();
            operator::find(&client.address, client.broker_uid)
        });
        let Client { address, broker_uid, .. } = client;
        match found {
            Some(socket) => Ok(Operator(Client { socket, address, broker_uid })),
            None if [0, broker_uid].contains(&rustix::process::geteuid().as_raw()) => {
                Err(ClientError::NoOperator { at: address, uid: broker_uid })
            }
            None => Err(ClientError::NotAllowed(broker_uid)),
        }
    }

    /// The socket itself, by which the stack joins.
    pub fn into_socket(self) -> OwnedFd {
        self.0.socket
    }

    /// Asks for the status.
    pub fn status(&self) -> Result<Status, ClientError> {
        let (_, memory) = self.0.ask(Msg::new(Kind::Status))?;
        // Only memory has seals, and a read of it waits for nobody.
        let memory = memory.filter(|memory| rustix::fs::fcntl_get_seals(memory).is_ok());
        let file = File::from(memory.ok_or_else(|| ClientError::Silent(self.0.address.clone()))?);
        serde_json::from_reader(io::BufReader::new(file.take(LONGEST_STATUS))).map_err(|e| ClientError::Io(e.into()))
    }

    /// Detaches or attaches. Returns the number of connections concerned.
    pub fn hold(&self, scope: Scope, hold: bool) -> Result<u64, ClientError> {
        let kind = if hold { Kind::Detach } else { Kind::Attach };
        Ok(self.0.ask(scope.to_msg(kind))?.0.arg)
    }
}
