//! What can be told of a device before it is opened.

use crate::attach::{self, Hook};
use crate::error::{Error, Result};
use crate::ethtool;
use crate::inlet;
use crate::path::link_mtu;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};
use rustix::io::Errno;
use sidestep_netlink::request;
use std::fmt;

/// NETDEV_XDP_ACT_BASIC | NETDEV_XDP_ACT_REDIRECT of linux/netdev.h.
const NATIVE: u64 = 3;
/// NETDEV_XDP_ACT_XSK_ZEROCOPY
const ZERO_COPY: u64 = 8;

/// A device, and what speaks against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Name of its driver; empty: it does not say.
    pub driver: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Number of its receive queues.
    pub queues: u32,
    /// Whether its driver can run XDP programs and redirect frames.
    pub has_native: bool,
    /// Whether its driver can use the memory of AF_XDP sockets itself.
    pub has_zero_copy: bool,
    /// Whether this process can make devices to divert frames to.
    pub has_inlet: bool,
    /// Id of the XDP program that is attached.
    pub program: Option<u32>,
    /// What speaks against taking connections of this device.
    pub concerns: Vec<Concern>,
}

/// What speaks against a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// It is down.
    Down,
    /// It has no Ethernet frames, or is the loopback device.
    NotEthernet,
    /// It is a port of another device, such as a bond or bridge, which may send by another port.
    PortOf {
        /// Name of that device.
        controller: String,
    },
    /// It is no device of its own, but one on top of others, of this kind.
    Virtual {
        /// The kind, as ip-link(8) names it.
        kind: String,
    },
    /// Another device is on top of it, such as a VLAN or macvlan, whose connections have other frames.
    Below {
        /// Name of the device on top.
        device: String,
    },
    /// It joins segments (LRO), so that frames are not as they were sent.
    Lro,
    /// It strips VLAN tags, so that frames of VLANs look untagged to XDP: turn `rx-vlan-offload` off if VLANs are used.
    StripsVlan,
    /// Its peer is on this host. Segments from there can have incomplete checksums, which only hold the pseudo-header's sum, and can
    /// be joined.
    LocalPeer,
    /// Another XDP program is attached.
    Program,
    /// Its driver has no XDP, and this process cannot make the device that frames are diverted to.
    Generic,
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Concern::Down => f.write_str("it is down"),
            Concern::NotEthernet => f.write_str("it has no Ethernet frames"),
            Concern::PortOf { controller } => write!(f, "it is a port of {controller}"),
            Concern::Virtual { kind } => write!(f, "it is a {kind} device, on top of others"),
            Concern::Below { device } => write!(f, "{device} is on top of it"),
            Concern::Lro => f.write_str("it joins segments (LRO)"),
            Concern::StripsVlan => f.write_str("it strips VLAN tags (rx-vlan-offload)"),
            Concern::LocalPeer => {
                f.write_str("its peer is on this host: checksums can be incomplete, and segments joined")
            }
            Concern::Program => f.write_str("it has an XDP program"),
            Concern::Generic => {
                f.write_str("only generic XDP is left, which makes other connections slower: there is no /dev/net/tun")
            }
        }
    }
}

impl Concern {
    /// What to do about it. `device`: the name of the device.
    pub fn advice(&self, device: &str) -> String {
        match self {
            Concern::Down => format!("`ip link set {device} up`"),
            Concern::NotEthernet => "name the device below it, by which Ethernet frames leave".into(),
            Concern::PortOf { controller } => format!("name {controller}, by which the kernel sends"),
            Concern::Virtual { .. } => {
                "name it if the connections' route leads to it: `ip route get ADDRESS` says so".into()
            }
            Concern::Below { device: above } => {
                format!("name {above} as well, or its connections stay with the kernel")
            }
            Concern::Lro => format!("`ethtool -K {device} lro off`"),
            Concern::StripsVlan => format!("if there are VLANs, `ethtool -K {device} rxvlan off`"),
            Concern::LocalPeer => {
                "nothing, if it leads to a container or a test; the stack completes and splits them".into()
            }
            Concern::Generic => "`modprobe tun`, and let the stack open /dev/net/tun".into(),
            Concern::Program => {
                format!("`bpftool net` says whose it is; `ip link set dev {device} xdp off` detaches it")
            }
        }
    }
}

impl Report {
    /// Whether it is one end of a veth pair.
    pub fn is_veth(&self) -> bool {
        self.driver == "veth"
    }

    /// Where the program runs if nothing else is asked for: in the driver if it can, but not on veth. There it would turn off the peer's
    /// segmentation offload, and so slow down all connections that are not taken.
    pub fn hook(&self) -> Hook {
        match self.has_native && !self.is_veth() {
            true => Hook::Native,
            false if self.has_inlet => Hook::Ingress,
            false => Hook::Generic,
        }
    }
}

/// Looks at the device of this name in the thread's network namespace. No capability is needed.
///
/// # Errors
///
/// [`Error::NoDevice`], [`Error::Call`].
pub fn probe(name: &str) -> Result<Report> {
    let missing = |source| Error::NoDevice { device: name.into(), source };
    let links = links().map_err(|source| Error::Call { doing: "ask the kernel for its devices", source })?;
    let link = links.iter().find(|link| name_of(link) == Some(name)).ok_or_else(|| missing(Errno::NODEV))?;
    let index = link.header.index;
    let found = attach::query(index).map_err(missing)?;
    let driver = ethtool::driver(name).unwrap_or_default();
    let mut report = Report {
        name: name.into(),
        index,
        driver,
        mtu: link_mtu(link).unwrap_or_default(),
        queues: ethtool::receive_queues(name),
        has_native: found.features & NATIVE == NATIVE,
        has_zero_copy: found.features & ZERO_COPY != 0,
        has_inlet: inlet::is_possible(),
        program: found.program,
        concerns: Vec::new(),
    };
    report.concerns = concerns(&report, link, &links);
    Ok(report)
}

fn links() -> rustix::io::Result<Vec<LinkMessage>> {
    let found = request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP);
    let found = found.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(found
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        })
        .collect())
}

fn concerns(report: &Report, link: &LinkMessage, links: &[LinkMessage]) -> Vec<Concern> {
    let flags = ethtool::flags(&report.name).unwrap_or_default();
    let is_ethernet = link.header.link_layer_type == LinkLayerType::Ether;
    let simple = [
        (!link.header.flags.contains(LinkFlags::Up), Concern::Down),
        (!is_ethernet, Concern::NotEthernet),
        (flags & ethtool::LRO != 0, Concern::Lro),
        (flags & ethtool::STRIPS_VLAN != 0 && report.hook() != Hook::Ingress, Concern::StripsVlan),
        (report.is_veth(), Concern::LocalPeer),
        (report.program.is_some(), Concern::Program),
        (report.hook() == Hook::Generic, Concern::Generic),
    ];
    let mut concerns: Vec<Concern> = simple.into_iter().filter(|(is, _)| *is).map(|(_, concern)| concern).collect();
    let controller = find(link, |attribute| match attribute {
        LinkAttribute::Controller(index) => Some(*index),
        _ => None,
    });
    concerns.extend(controller.map(|index| Concern::PortOf { controller: name_or_index(links, index) }));
    let kind = kind_of(link).filter(|kind| !matches!(kind, InfoKind::Veth | InfoKind::Tun | InfoKind::Dummy));
    concerns.extend(kind.map(|kind| Concern::Virtual { kind: kind.to_string() }));
    let above = links.iter().filter(|other| is_on_top(other, link.header.index));
    concerns.extend(above.map(|other| Concern::Below { device: name_or_index(links, other.header.index) }));
    concerns
}

fn find<T>(link: &LinkMessage, mut which: impl FnMut(&LinkAttribute) -> Option<T>) -> Option<T> {
    link.attributes.iter().find_map(&mut which)
}

fn name_of(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

fn name_or_index(links: &[LinkMessage], index: u32) -> String {
    let found = links.iter().find(|link| link.header.index == index).and_then(name_of);
    found.map_or_else(|| format!("the device with index {index}"), str::to_owned)
}

fn kind_of(link: &LinkMessage) -> Option<InfoKind> {
    find(link, |attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
            LinkInfo::Kind(kind) => Some(kind.clone()),
            _ => None,
        }),
        _ => None,
    })
}

/// A veth device names its peer in the same way, which is not below it; and a link of another namespace is not meant.
fn is_on_top(other: &LinkMessage, index: u32) -> bool {
    let below = find(other, |attribute| match attribute {
        LinkAttribute::Link(below) => Some(*below),
        _ => None,
    });
    let is_elsewhere = find(other, |attribute| match attribute {
        LinkAttribute::LinkNetNsId(_) => Some(()),
        _ => None,
    });
    below == Some(index) && is_elsewhere.is_none() && kind_of(other) != Some(InfoKind::Veth)
}
