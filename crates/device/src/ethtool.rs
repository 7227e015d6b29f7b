//! Questions about a device that only SIOCETHTOOL answers (netdevice(7), linux/ethtool.h).

use crate::ifreq;
use rustix::fd::AsFd;
use rustix::io;
use rustix::net::{AddressFamily, SocketType, socket};

const GET_DRIVER: u32 = 0x03;
const GET_FLAGS: u32 = 0x25;
const GET_CHANNELS: u32 = 0x3c;

/// The device strips VLAN tags, so that no program sees them.
pub(crate) const STRIPS_VLAN: u32 = 1 << 8;
/// The device joins segments in a way that cannot be undone.
pub(crate) const LRO: u32 = 1 << 15;

/// `struct ethtool_drvinfo`, as far as it is used.
#[repr(C)]
struct Driver {
    command: u32,
    name: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

/// Name of the driver.
pub(crate) fn driver(device: &str) -> io::Result<String> {
    let mut driver = Driver { command: GET_DRIVER, name: [0; 32], rest: [0; 160] };
    ask(device, &mut driver)?;
    let name = driver.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Offloads: [`LRO`], [`STRIPS_VLAN`].
pub(crate) fn flags(device: &str) -> io::Result<u32> {
    let mut value = Value { command: GET_FLAGS, data: 0 };
    ask(device, &mut value)?;
    Ok(value.data)
}

/// Number of receive queues in use. A driver that does not say has one.
pub(crate) fn receive_queues(device: &str) -> u32 {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    match ask(device, &mut channels) {
        Ok(()) => channels.receive.saturating_add(channels.combined).clamp(1, 1024),
        Err(_) => 1,
    }
}

/// `T`: the structure of the command that its first word names.
fn ask<T>(device: &str, question: &mut T) -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = ifreq::about(device)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    // SAFETY: the question's structure is that of its command, and lives during the call.
    unsafe { ifreq::call(socket.as_fd(), libc::SIOCETHTOOL as _, &mut request) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<Driver>(), 196);
        assert_eq!(size_of::<Value>(), 8);
        assert_eq!(size_of::<Channels>(), 36);
    }

    #[test]
    fn a_name_that_is_too_long_is_no_device() {
        assert_eq!(driver("a-name-of-twenty-one").unwrap_err(), Errno::NODEV);
    }
}
