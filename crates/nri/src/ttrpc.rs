//! ttrpc, containerd's protocol of calls: its messages, as far as calls with one request and one response need them.
//!
//! The crate `ttrpc` wants a socket for each connection, where NRI has two connections in one; what is needed of the protocol is
//! below.

use prost::Message as _;

/// Bytes before a message's content: length and stream (32 bits, big-endian), type, flags.
pub(crate) const HEADER: usize = 10;
/// Most bytes of a message's content, as the protocol has it.
pub(crate) const LARGEST: usize = 4 << 20;

/// A message with a call, or with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Request,
    Response,
}

/// One message.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Message {
    pub kind: Kind,
    /// The number of the call; the answer has the same.
    pub stream: u32,
    pub content: Vec<u8>,
}

/// A call.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs)]
pub struct Request {
    #[prost(string, tag = "1")]
    pub service: String,
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    /// Nanoseconds within which the caller wants an answer.
    #[prost(int64, tag = "4")]
    pub timeout: i64,
}

/// The answer to a call.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs)]
pub struct Response {
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// Whether a call succeeded: `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs)]
pub struct Status {
    /// 0: it did.
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `google.rpc.Code.INVALID_ARGUMENT`.
pub const INVALID_ARGUMENT: i32 = 3;
/// `google.rpc.Code.UNIMPLEMENTED`.
pub const UNIMPLEMENTED: i32 = 12;

impl Response {
    /// The call succeeded.
    pub fn success(answer: &impl prost::Message) -> Response {
        Response { status: None, payload: answer.encode_to_vec() }
    }

    /// The call failed.
    pub fn failure(code: i32, message: impl Into<String>) -> Response {
        Response { status: Some(Status { code, message: message.into() }), payload: Vec::new() }
    }
}

/// Bytes that are no messages of this protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)] // Their messages say it.
pub enum MessageError {
    #[error("a message of {0} bytes (at most {LARGEST} are allowed)")]
    TooLarge(usize),
    #[error("a message of the unknown type {0}")]
    UnknownType(u8),
}

impl Message {
    /// A message with a call.
    pub fn request(stream: u32, request: &Request) -> Message {
        Message { kind: Kind::Request, stream, content: request.encode_to_vec() }
    }

    /// A message with an answer.
    pub fn response(stream: u32, response: &Response) -> Message {
        Message { kind: Kind::Response, stream, content: response.encode_to_vec() }
    }

    /// As on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.content.len());
        bytes.extend((self.content.len() as u32).to_be_bytes());
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend([
            match self.kind {
                Kind::Request => 1,
                Kind::Response => 2,
            },
            0,
        ]);
        bytes.extend(&self.content);
        bytes
    }
}

/// Finds messages in the stream of one connection.
#[derive(Default)]
pub struct Messages {
    /// Not a whole message yet: never more than one message and one frame.
    bytes: Vec<u8>,
}

impl Messages {
    /// More bytes have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The next whole message, if it has arrived.
    pub fn pop(&mut self) -> Result<Option<Message>, MessageError> {
        let Some((&[l0, l1, l2, l3, s0, s1, s2, s3, kind, _], rest)) = self.bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let (length, stream) = (u32::from_be_bytes([l0, l1, l2, l3]) as usize, u32::from_be_bytes([s0, s1, s2, s3]));
        if length > LARGEST {
            return Err(MessageError::TooLarge(length));
        }
        let kind = match kind {
            1 => Kind::Request,
            2 => Kind::Response,
            other => return Err(MessageError::UnknownType(other)),
        };
        let Some(content) = rest.get(..length) else { return Ok(None) };
        let message = Message { kind, stream, content: content.to_vec() };
        self.bytes.drain(..HEADER + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(stream: u32, content: &[u8]) -> Message {
        Message { kind: Kind::Request, stream, content: content.to_vec() }
    }

    #[test]
    fn messages_are_found_however_their_bytes_arrive() {
        let sent = [message(1, b"abc"), message(3, b""), message(5, &[7; 5000])];
        let wire: Vec<u8> = sent.iter().flat_map(Message::encode).collect();
        for step in [1, 2, 9, 10, 11, 4096, wire.len()] {
            let mut messages = Messages::default();
            let mut found = Vec::new();
            for part in wire.chunks(step) {
                messages.push(part);
                found.extend(std::iter::from_fn(|| messages.pop().expect("messages")));
            }
            assert_eq!(found, sent, "{step} bytes at a time");
            assert!(messages.bytes.is_empty());
        }
    }

    #[test]
    fn wrong_headers_are_refused_before_their_content_arrives() {
        for (length, kind, error) in [
            (LARGEST as u32 + 1, 1, MessageError::TooLarge(LARGEST + 1)),
            (u32::MAX, 1, MessageError::TooLarge(u32::MAX as usize)),
            (0, 0, MessageError::UnknownType(0)),
            (5, 3, MessageError::UnknownType(3)),
        ] {
            let mut messages = Messages::default();
            messages.push(&[&length.to_be_bytes()[..], &[0, 0, 0, 1, kind, 0]].concat());
            assert_eq!(messages.pop(), Err(error));
        }
    }
}
