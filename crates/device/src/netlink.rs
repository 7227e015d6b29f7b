//! Requests to rtnetlink(7) about the thread's network namespace.

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Size of a netlink message's header.
const HEADER: usize = 16;

/// Asks for objects, or for a change. `flags`: besides NLM_F_REQUEST; with NLM_F_DUMP the answer is all objects of the kind.
pub(crate) fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    message.header.flags = flags | NLM_F_REQUEST | NLM_F_ACK;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut found = Vec::new();
    loop {
        // Connected to the kernel: nobody else's messages arrive.
        let (datagram, _) = socket.recv_from_full()?;
        if parse(&datagram, &mut found)? == Rest::None {
            return Ok(found);
        }
    }
}

/// Whether more datagrams follow.
#[derive(PartialEq, Eq)]
pub(crate) enum Rest {
    Follows,
    None,
}

/// Appends the messages of a datagram to `found`. Messages of unknown form are skipped.
pub(crate) fn parse(datagram: &[u8], found: &mut Vec<RouteNetlinkMessage>) -> io::Result<Rest> {
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
