//! The address at which a server listens: as an option says it, and as the kernel has it.

use std::io;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kernel has no IPv6 at all, as with `ipv6.disable=1`.
const EAFNOSUPPORT: i32 = 97;

/// `ADDRESS:PORT`. An IPv6 address may be without its brackets: Kubernetes writes the addresses of nodes and pods so, and a pod's
/// manifest can only put a port behind that.
///
/// # Errors
///
/// The text is something else.
pub fn address(text: &str) -> Result<SocketAddr, AddrParseError> {
    let without_brackets = || {
        let (address, port) = text.rsplit_once(':')?;
        Some(SocketAddr::new(address.parse::<Ipv6Addr>().ok()?.into(), port.parse().ok()?))
    };
    text.parse::<SocketAddr>().or_else(|error| without_brackets().ok_or(error))
}

/// Listens `by` a function at an address. `[::]` takes IPv4, too; a kernel without IPv6 has only 0.0.0.0 for the same.
pub fn listen<T>(address: SocketAddr, by: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let is_all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    by(address).or_else(|error| match error.raw_os_error() {
        Some(EAFNOSUPPORT) if is_all => by((Ipv4Addr::UNSPECIFIED, address.port()).into()),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_may_be_missing() {
        for (text, expected) in [
            ("192.0.2.1:9464", "192.0.2.1:9464"),
            ("[fd00::5]:9464", "[fd00::5]:9464"),
            ("fd00::5:9464", "[fd00::5]:9464"),
            ("2001:db8:1:2:3:4:5:6:80", "[2001:db8:1:2:3:4:5:6]:80"),
            (":::9443", "[::]:9443"),
        ] {
            assert_eq!(address(text).map(|address| address.to_string()), Ok(expected.to_owned()), "{text}");
        }
        for bad in ["", "fd00::5", "2001:db8:1:2:3:4:5:6", "[fd00::5]", "fd00::5:70000", "fd00::5:http", "node:80"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_addresses_are_those_that_the_kernel_has() {
        let without_ipv6 = |address: SocketAddr| match address {
            SocketAddr::V4(_) => Ok(address),
            SocketAddr::V6(_) => Err(io::Error::from_raw_os_error(EAFNOSUPPORT)),
        };
        let at = |text: &str| listen(address(text).expect("an address"), without_ipv6).map(|at| at.to_string()).ok();
        assert_eq!(at("[::]:9443").as_deref(), Some("0.0.0.0:9443"));
        assert_eq!(at("[fd00::5]:9443"), None, "a certain address is meant");
        let in_use = |_| Err::<(), _>(io::Error::from(io::ErrorKind::AddrInUse));
        assert!(listen(address("[::]:9443").expect("an address"), in_use).is_err());
    }
}
