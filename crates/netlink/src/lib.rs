//! Requests to rtnetlink(7) and to netfilter about the network namespace of the calling thread.

pub mod netfilter;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Size of a netlink message's header.
const HEADER: usize = 16;

/// Asks for objects, or for a change, and returns the answer. `flags`: besides NLM_F_REQUEST and NLM_F_ACK; with NLM_F_DUMP the
/// answer is all objects of the kind.
///
/// # Errors
///
/// The kernel's.
pub fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let socket = open(NETLINK_ROUTE)?;
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    message.header.flags = flags | NLM_F_REQUEST | NLM_F_ACK;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut found = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        if parse(&datagram, &mut found)? == Rest::None {
            return Ok(found);
        }
    }
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
    let mut rest = datagram;
    while rest.len() >= HEADER {
        let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let (one, after) = rest.split_at(length.next_multiple_of(4).clamp(HEADER, rest.len()));
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one).map(|message| message.payload) {
            Ok(NetlinkPayload::Done(_)) => return Ok(Rest::None),
            // An error message without an error code is an acknowledgement.
            Ok(NetlinkPayload::Error(error)) if error.code.is_none() => return Ok(Rest::None),
            Ok(NetlinkPayload::Error(error)) => return Err(error.to_io()),
            Ok(NetlinkPayload::InnerMessage(message)) => found.push(message),
            _ => {}
        }
        rest = after;
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
