//! Messages of nfnetlink: requests to netfilter in the network namespace of the calling thread.

use crate::{HEADER, Message, Rest, messages, whole_answer};
use netlink_sys::protocols::NETLINK_NETFILTER;
use std::io;

// linux/netlink.h
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const NESTED: u16 = 0x8000;

/// Family, version and resource, which follow the header of a message.
const FAMILY: usize = 4;
const ANY_FAMILY: u8 = 0;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

/// A message to a subsystem. `kind` has the subsystem in its upper half; `flags`: besides NLM_F_REQUEST.
pub fn message(kind: u16, flags: u16, family: u8, attributes: &[u8]) -> Vec<u8> {
    with_resource(kind, flags, family, 0, attributes)
}

/// Messages that take effect together, or not at all.
pub fn batch(subsystem: u16, messages: &[Vec<u8>]) -> Vec<u8> {
    let frame = |kind| with_resource(kind, 0, ANY_FAMILY, subsystem, &[]);
    [frame(BATCH_BEGIN), messages.concat(), frame(BATCH_END)].concat()
}

fn with_resource(kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) -> Vec<u8> {
    let length = (HEADER + FAMILY + attributes.len()) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | REQUEST).to_ne_bytes());
    bytes.extend([0; 8]); // sequence number, sender
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(attributes);
    bytes
}

/// An attribute with these bytes as its value.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An attribute whose value is other attributes.
pub fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, value)
}

/// An attribute with a number, in network order as netfilter expects it.
pub fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

/// An attribute with a text.
pub fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// Sends a request and reads the kernel's first answer: an object, or an error, whose number is 0 in an acknowledgement.
///
/// # Errors
///
/// The kernel's.
pub fn ask(request: &[u8]) -> io::Result<()> {
    let socket = crate::open(NETLINK_NETFILTER)?;
    socket.send(request, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match messages(&answer).next() {
        Some(Message { kind: ERROR, body, .. }) => acknowledged(body),
        Some(_) => Ok(()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The value of this text attribute in all objects of a kind, of all families.
///
/// # Errors
///
/// The kernel's. EBUSY: as of [`crate::request`].
pub fn list(kind: u16, attribute: u16) -> io::Result<Vec<String>> {
    let socket = crate::open(NETLINK_NETFILTER)?;
    whole_answer(&socket, &message(kind, DUMP, ANY_FAMILY, &[]), |datagram, names| {
        for Message { kind, body, .. } in messages(datagram) {
            match kind {
                DONE => return Ok(Rest::None),
                ERROR => return acknowledged(body).map(|()| Rest::None),
                _ => names.extend(text_in(body.get(FAMILY..).unwrap_or_default(), attribute)),
            }
        }
        Ok(Rest::Follows)
    })
}

fn acknowledged(body: &[u8]) -> io::Result<()> {
    match body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The text of an attribute, without the 0 at its end.
fn text_in(attributes: &[u8], wanted: u16) -> Option<String> {
    let mut rest = attributes;
    loop {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..length)?;
        if kind == wanted {
            return Some(String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned());
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: u16 = 10 << 8 | 1; // NFT_MSG_GETTABLE

    #[test]
    fn attributes_are_found_and_malformed_ones_end_the_search() {
        let attributes = [number(1, 7), text(2, "name"), text(3, "other")].concat();
        assert_eq!(text_in(&attributes, 2).as_deref(), Some("name"));
        assert_eq!(text_in(&attributes, 4), None);
        assert_eq!(text_in(&[0, 0, 9, 0], 2), None); // shorter than its header
        assert_eq!(text_in(&attributes[..10], 2), None);
    }

    #[test]
    fn messages_that_are_cut_off_are_not_read() {
        let two = [message(TABLES, 0, 1, &text(1, "x")), message(TABLES, 0, 1, &[])].concat();
        assert_eq!(messages(&two).count(), 2);
        assert_eq!(messages(&two[..two.len() - 1]).count(), 1);
        assert_eq!(messages(&[0; 64]).count(), 0);
    }

    #[test]
    fn the_kernel_answers() {
        let missing = message(TABLES, 0, 1, &text(1, "sidestep-is-not-here"));
        assert_eq!(ask(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(list(TABLES, 1).is_ok());
    }
}
