//! Events of other network namespaces (rtnetlink(7)): changed routes, addresses and interfaces, and the end of a namespace.
//!
//! One socket in this namespace receives the events of all namespaces that have a number here (`ip netns list-id`). A socket
//! in each of them would keep the namespace alive after its pod.

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use sidestep_netlink::request;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something changed in the namespace with this number.
    In(i32),
    /// The namespace with this number ended.
    End(i32),
    /// Events were lost: there were too many.
    Lost,
}

/// Receives the events of all network namespaces that have a number in this one.
pub struct Changes(Socket);

/// RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_NSID
const GROUPS: [u32; 6] = [1, 5, 7, 9, 11, 28];
/// Holds thousands of events.
const BUFFER: usize = 8 << 20;
/// Types of netlink messages: RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR, RTM_DELADDR, RTM_NEWROUTE, RTM_DELROUTE
const OF_PLACES: [u16; 6] = [16, 17, 20, 21, 24, 25];
const RTM_DELNSID: u16 = 89;

impl Changes {
    /// Needs CAP_NET_BROADCAST.
    pub fn listen() -> io::Result<Changes> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let _ = set_socket_recv_buffer_size_force(&socket, BUFFER); // with a smaller buffer more events are lost
        socket.set_listen_all_namespaces(true)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        GROUPS.iter().try_for_each(|group| socket.add_membership(*group))?;
        Ok(Changes(socket))
    }

    /// Waits for the next event.
    pub fn next(&self) -> io::Result<Change> {
        loop {
            let mut bytes = vec![0; MOST];
            match receive(&self.0, &mut bytes) {
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(Change::Lost),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok((length, origin)) => match change(&bytes[..length], origin) {
                    Some(change) => return Ok(change),
                    None => continue,
                },
            }
        }
    }
}

/// More than the longest message.
const MOST: usize = 32 << 10;

fn change(datagram: &[u8], origin: Option<i32>) -> Option<Change> {
    let kind = u16::from_ne_bytes(datagram.get(4..6)?.try_into().ok()?);
    match origin {
        Some(number) => OF_PLACES.contains(&kind).then_some(Change::In(number)),
        // RTM_DELNSID is sent in this namespace: the number is in the message.
        None if kind == RTM_DELNSID => number_in(datagram).map(Change::End),
        None => None,
    }
}

fn number_in(datagram: &[u8]) -> Option<i32> {
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram).ok()?.payload {
        NetlinkPayload::InnerMessage(message) => number_of(message),
        _ => None,
    }
}

fn number_of(message: RouteNetlinkMessage) -> Option<i32> {
    let (RouteNetlinkMessage::NewNsId(found) | RouteNetlinkMessage::DelNsId(found)) = message else { return None };
    found.attributes.into_iter().find_map(|attribute| match attribute {
        NsidAttribute::Id(number) if number >= 0 => Some(number),
        _ => None,
    })
}

/// Receives a datagram: its length, and the number of the namespace that sent it; None: this namespace.
fn receive(socket: &Socket, bytes: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    let mut control = [0u64; 8];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the pointers lead to as much memory as is said, which lives until the call returns.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, 0) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled `control` in, which is aligned as its messages are.
    let first = unsafe { libc::CMSG_FIRSTHDR(&message).as_ref() };
    let is_origin =
        |header: &&libc::cmsghdr| (header.cmsg_level, header.cmsg_type) == (libc::SOL_NETLINK, LISTEN_ALL_NSID);
    let origin = first.filter(is_origin).map(|header| {
        // SAFETY: such a message carries an `int`.
        unsafe { libc::CMSG_DATA(header).cast::<i32>().read_unaligned() }
    });
    Ok((length as usize, origin))
}

const LISTEN_ALL_NSID: i32 = 8;

#[derive(Debug, thiserror::Error)]
#[error("the kernel gives it no number")]
struct NoNumber;

/// The number of that namespace in this one; the kernel assigns one if there is none.
pub fn number(namespace: &Path) -> io::Result<i32> {
    let file = File::open(namespace)?;
    let its = NsidAttribute::Fd(file.as_raw_fd() as u32);
    let asked = |attributes| {
        let mut message = NsidMessage::default();
        message.attributes = attributes;
        message
    };
    let given = request(RouteNetlinkMessage::NewNsId(asked(vec![NsidAttribute::Id(-1), its.clone()])), 0);
    match given {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = request(RouteNetlinkMessage::GetNsId(asked(vec![its])), 0)?;
    found.into_iter().find_map(number_of).ok_or_else(|| io::Error::other(NoNumber))
}
