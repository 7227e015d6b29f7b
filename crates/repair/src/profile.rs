//! Reads what a carrier of the connection may have to respect.

use crate::info::{ECN, Info};
use crate::kernel::{CallError, named};
use crate::options;
use crate::state::Profile;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::getsockname;
use std::net::SocketAddr;

/// The two bits of ECN in the traffic class.
const ECN_BITS: u8 = 3;
/// Of linux/sock_diag.h.
const SK_MEMINFO_OPTMEM: usize = 6;

/// What the kernel applies to the packets of this socket, which need not be taken.
pub fn profile(fd: impl AsFd) -> Result<Profile, CallError> {
    let fd = fd.as_fd();
    let local = named("getsockname(2)", getsockname(fd).and_then(SocketAddr::try_from))?;
    read(fd, &Info::read(fd)?, local)
}

pub(crate) fn read(fd: BorrowedFd, info: &Info, local: SocketAddr) -> Result<Profile, CallError> {
    // A v4-mapped connection sends IPv4 packets.
    let (hop_limit, class) = if local.ip().to_canonical().is_ipv4() {
        (options::IP_TTL, options::IP_TOS)
    } else {
        (options::IPV6_UNICAST_HOPS, options::IPV6_TCLASS)
    };
    let pacing = options::SO_MAX_PACING_RATE.get(fd)?;
    Ok(Profile {
        congestion: congestion(fd)?,
        max_pacing_rate: (pacing != u64::MAX).then_some(pacing),
        mark: options::SO_MARK.get(fd)?,
        device: options::SO_BINDTOIFINDEX.get(fd)?,
        priority: options::SO_PRIORITY.get(fd)?,
        hop_limit: hop_limit.get(fd)? as u8,
        traffic_class: class.get(fd)? as u8 & !ECN_BITS,
        ecn: info.options() & ECN != 0,
        option_memory: options::SO_MEMINFO.get(fd)?[SK_MEMINFO_OPTMEM],
    })
}

fn congestion(fd: BorrowedFd) -> Result<String, CallError> {
    let name = options::TCP_CONGESTION.get(fd)?.map(u32::to_ne_bytes);
    let letters = name.as_flattened().iter().take_while(|byte| **byte != 0);
    Ok(letters.map(|byte| char::from(*byte)).collect())
}
