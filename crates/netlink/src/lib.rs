//! Requests to rtnetlink(7), sock_diag(7) and netfilter about the network namespace of the calling thread.

pub mod diag;
pub mod netfilter;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Size of a netlink message's header.
const HEADER: usize = 16;
/// So often objects are listed again that have changed meanwhile.
const TRIES: usize = 20;

/// Asks for objects, or for a change, and returns the answer. `flags`: besides NLM_F_REQUEST and NLM_F_ACK; with NLM_F_DUMP the
/// answer is all objects of the kind.
///
/// # Errors
///
/// The kernel's. EBUSY: the objects changed during each of several listings, so none is complete.
pub fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let socket = open(NETLINK_ROUTE)?;
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    message.header.flags = flags | NLM_F_REQUEST | NLM_F_ACK;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    whole_answer(&socket, &bytes, parse)
}

/// Sends a request and reads the whole answer, again if objects have changed while the kernel listed them.
fn whole_answer<T>(
    socket: &Socket,
    request: &[u8],
    parse: impl Fn(&[u8], &mut Vec<T>) -> io::Result<Rest>,
) -> io::Result<Vec<T>> {
    for _ in 0..TRIES {
        socket.send(request, 0)?;
        if let Some(found) = answer(|| Ok(socket.recv_from_full()?.0), &parse)? {
            return Ok(found);
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// The whole answer. None: objects have changed while the kernel listed them, and some may be missing.
fn answer<T>(
    mut next: impl FnMut() -> io::Result<Vec<u8>>,
    parse: impl Fn(&[u8], &mut Vec<T>) -> io::Result<Rest>,
) -> io::Result<Option<Vec<T>>> {
    let (mut found, mut has_changed) = (Vec::new(), false);
    loop {
        let datagram = next()?;
        has_changed |= messages(&datagram).any(|message| message.flags & NLM_F_DUMP_INTR != 0);
        if parse(&datagram, &mut found)? == Rest::None {
            return Ok((!has_changed).then_some(found));
        }
    }
}

/// A message of a datagram.
struct Message<'a> {
    kind: u16,
    flags: u16,
    /// What follows the header.
    body: &'a [u8],
    /// With the header.
    whole: &'a [u8],
}

/// The messages of a datagram, up to one that is cut off.
fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let whole = rest.get(..length)?;
        let number = |at: usize| Some(u16::from_ne_bytes(*whole.get(at..)?.first_chunk()?));
        let message = Message { kind: number(4)?, flags: number(6)?, body: whole.get(HEADER..)?, whole };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// A socket that is connected to the kernel: nobody else's messages arrive.
fn open(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Whether more datagrams follow.
#[derive(Debug, PartialEq, Eq)]
pub enum Rest {
    /// The answer is not complete.
    Follows,
    /// This was the last datagram.
    None,
}

/// Appends the messages of a datagram to `found`. Messages of unknown form are skipped.
///
/// # Errors
///
/// The error that the kernel reports in the datagram.
pub fn parse(datagram: &[u8], found: &mut Vec<RouteNetlinkMessage>) -> io::Result<Rest> {
    for one in messages(datagram) {
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one.whole).map(|message| message.payload) {
            Ok(NetlinkPayload::Done(_)) => return Ok(Rest::None),
            // An error message without an error code is an acknowledgement.
            Ok(NetlinkPayload::Error(error)) if error.code.is_none() => return Ok(Rest::None),
            Ok(NetlinkPayload::Error(error)) => return Err(error.to_io()),
            Ok(NetlinkPayload::InnerMessage(message)) => found.push(message),
            _ => {}
        }
    }
    Ok(Rest::Follows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::NLM_F_DUMP;
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};

    /// NLMSG_ERROR of linux/netlink.h.
    const ERROR: u16 = 2;

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let length = (HEADER + payload.len()) as u32;
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], payload].concat()
    }

    /// An error message repeats the header of the request.
    fn answer(code: i32) -> Vec<u8> {
        message(ERROR, &[&code.to_ne_bytes()[..], &[0; HEADER]].concat())
    }

    #[test]
    fn an_acknowledgement_ends_the_answer_and_an_error_is_the_kernels() {
        let parse = |datagram: &[u8]| parse(datagram, &mut Vec::new());
        assert_eq!(parse(&answer(0)).unwrap(), Rest::None);
        assert_eq!(parse(&answer(-17)).unwrap_err().raw_os_error(), Some(17));
        assert_eq!(parse(&[]).unwrap(), Rest::Follows);
    }

    #[test]
    fn a_list_of_objects_that_changed_meanwhile_is_no_answer() {
        let with = |flags: u16| {
            let mut message = message(999, &[]);
            message[6..8].copy_from_slice(&flags.to_ne_bytes());
            message
        };
        let said = |first: u16, last: u16| {
            let mut datagrams = [with(first), [with(last), super::tests::answer(0)].concat()].into_iter();
            super::answer(|| Ok(datagrams.next().expect("no more is read")), super::parse).unwrap().is_some()
        };
        assert!(said(0, 2));
        assert!(!said(NLM_F_DUMP_INTR, 2) && !said(2, NLM_F_DUMP_INTR | 2));
    }

    #[test]
    fn what_is_unknown_or_cut_off_is_skipped() {
        let unknown = message(999, &[1, 2, 3, 4]);
        let mut cut_off = answer(0);
        cut_off.truncate(HEADER + 2);
        let mut found = Vec::new();
        assert_eq!(parse(&[&unknown[..], &answer(0)].concat(), &mut found).unwrap(), Rest::None);
        assert_eq!(parse(&[&unknown[..], &cut_off].concat(), &mut found).unwrap(), Rest::Follows);
        assert!(found.is_empty());
    }

    #[test]
    fn the_kernel_answers_a_dump() {
        let found = request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP).unwrap();
        let is_loopback = |message: &RouteNetlinkMessage| {
            let RouteNetlinkMessage::NewLink(link) = message else { return false };
            link.attributes.contains(&LinkAttribute::IfName("lo".into()))
        };
        assert!(found.iter().any(is_loopback), "{found:?}");
    }
}
