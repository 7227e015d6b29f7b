//! The inlet: a network device of this process's own, to which the frames of taken connections are diverted. Its XDP program delivers
//! them to AF_XDP sockets, which no program of another kind can.
//!
//! It is a TAP device that is not persistent (linux/if_tun.h), so it goes with the last copy of its descriptor, however the processes
//! that have one end. Nothing is ever sent by it: it has no address, and no route leads to it.

use crate::error::{Error, Result};
use crate::ifreq;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
use sidestep_netlink::request;

/// What makes TAP devices.
const TUN: &str = "/dev/net/tun";
/// The kernel puts a number in place of `%d`.
const NAME: &str = "sidestep%d";
/// No frame is longer, but those of joined segments, for which no MTU counts.
const MTU: u32 = 65521;

/// The device, as long as a copy of its descriptor is open.
pub(crate) struct Inlet {
    file: OwnedFd,
    name: String,
    index: u32,
}

impl Inlet {
    /// Makes the device in the thread's network namespace.
    pub fn new() -> Result<Inlet> {
        let at = |doing| move |source| Error::Inlet { doing, source };
        let file = open(TUN, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(at("open /dev/net/tun"))?;
        let doing = "make a TAP device (this takes CAP_NET_ADMIN)";
        let name = make(file.as_fd()).map_err(at(doing))?;
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(at(doing))?;
        let index = name_to_index(&socket, &name).map_err(at(doing))?;
        without_addresses(index).map_err(at("keep addresses off the TAP device"))?;
        up(index).map_err(at("set the TAP device up"))?;
        Ok(Inlet { file, name, index })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// What keeps the device.
    pub fn into_file(self) -> OwnedFd {
        self.file
    }
}

/// Whether this process could make an inlet, apart from its capabilities.
pub(crate) fn is_possible() -> bool {
    open(TUN, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// Whether frames can still come. Somebody else may have set the device down, or removed it. `file`: what keeps it, which can be
/// written to only while it is up. So this works from any network namespace.
pub(crate) fn must_be_up(file: BorrowedFd) -> Result<()> {
    let at =
        |source| Error::Inlet { doing: "use the stack's own device, which somebody has set down or removed", source };
    let mut fds = [PollFd::from_borrowed_fd(file, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default())).map_err(at)?;
    if fds[0].revents() == PollFlags::OUT { Ok(()) } else { Err(at(Errno::NETDOWN)) }
}

/// Returns the name.
fn make(file: BorrowedFd) -> io::Result<String> {
    let mut request = ifreq::about(NAME)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the command takes an ifreq with flags.
    unsafe { ifreq::call(file, libc::TUNSETIFF, &mut request) }?;
    let name = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8(name).map_err(|_| Errno::INVAL)
}

/// IPv6 gives each device an address that is up, and then looks for routers by it. If there is no IPv6, nothing does.
fn without_addresses(index: u32) -> io::Result<()> {
    let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]));
    match change(link) {
        Err(Errno::AFNOSUPPORT) => Ok(()),
        outcome => outcome,
    }
}

fn up(index: u32) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    (link.header.flags, link.header.change_mask) = (UP, UP);
    link.attributes.push(LinkAttribute::Mtu(MTU));
    change(link)
}

/// Up, and no neighbour is ever asked for by it.
const UP: LinkFlags = LinkFlags::Up.union(LinkFlags::Noarp);

fn change(link: LinkMessage) -> io::Result<()> {
    let outcome = request(RouteNetlinkMessage::SetLink(link), 0);
    outcome.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
