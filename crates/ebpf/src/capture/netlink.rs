//! Netlink requests about the network namespace of the calling thread (rtnetlink(7)).

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Returns all objects of a kind.
pub fn dump(question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    talk(question, NLM_F_DUMP)
}

/// Requests a change.
pub fn request(wanted: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    talk(wanted, flags | NLM_F_ACK).map(drop)
}

/// Returns one object.
pub fn ask(question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    talk(question, NLM_F_ACK)
}

fn talk(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    message.header.flags = flags | NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut found = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        if !parse(&datagram, &mut found)? {
            return Ok(found);
        }
    }
}

/// Appends the messages of a datagram to `found`; false: the last message was there. Messages of unknown form are skipped.
fn parse(datagram: &[u8], found: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
    let mut rest = datagram;
    while rest.len() >= HEADER {
        let length = u32::from_ne_bytes(rest[..4].try_into().expect("four bytes")) as usize;
        let (one, after) = rest.split_at(length.next_multiple_of(4).clamp(HEADER, rest.len()));
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one).map(|message| message.payload) {
            Ok(NetlinkPayload::Done(_)) => return Ok(false),
            // An error message without an error code is an acknowledgement.
            Ok(NetlinkPayload::Error(error)) if error.code.is_none() => return Ok(false),
            Ok(NetlinkPayload::Error(error)) => return Err(error.to_io()),
            Ok(NetlinkPayload::InnerMessage(message)) => found.push(message),
            _ => {}
        }
        rest = after;
    }
    Ok(true)
}

/// Size of a netlink message's header.
const HEADER: usize = 16;
