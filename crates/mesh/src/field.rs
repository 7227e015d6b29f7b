//! Fields that several kinds of Kubernetes objects have.

use crate::labels::Labels;
use crate::name::Name;
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::fmt;
use std::net::IpAddr;

/// Annotation of a pod, a namespace or a document of kind Capture: the pods' connections never bypass the proxy.
pub const REQUIRE_PROXY: &str = "sidestep.dev/require-proxy";
/// Annotation of the object of a pod that the kubelet has from a file: the UID by which kubelet and container runtime know the pod.
/// The object has another one.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Such as `spec.ports[0].port`.
    pub path: String,
    /// The value as Rust's `Debug` prints it: texts in quotation marks, `()` for a missing one.
    pub found: String,
    /// Completes the sentence "... where ... is expected".
    pub expected: &'static str,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {} where {} is expected", self.path, self.found, self.expected)
    }
}

impl std::error::Error for Invalid {}

/// The error is the first invalid field.
pub type Result<T> = std::result::Result<T, Invalid>;

pub(crate) fn invalid<T>(path: impl Into<String>, found: impl fmt::Debug, expected: &'static str) -> Result<T> {
    Err(Invalid { path: path.into(), found: format!("{found:?}"), expected })
}

pub(crate) fn name(metadata: &ObjectMeta) -> Result<Name> {
    let Some(name) = metadata.name.as_deref().filter(|name| !name.is_empty()) else {
        return invalid("metadata.name", (), "a name");
    };
    Ok(Name::new(metadata.namespace.as_deref().unwrap_or("default"), name))
}

pub(crate) fn addresses(path: &str, texts: &[String]) -> Result<Vec<IpAddr>> {
    texts.iter().enumerate().map(|(i, text)| address(format!("{path}[{i}]"), text)).collect()
}

pub(crate) fn address(path: String, text: &str) -> Result<IpAddr> {
    parsed(text).map_or_else(|| invalid(path, text, "an IP address"), Ok)
}

/// As the API server reads it: `::ffff:a.b.c.d` is IPv4, and leading zeros mean nothing.
pub(crate) fn parsed(text: &str) -> Option<IpAddr> {
    address_of(text).map(|ip| ip.to_canonical())
}

/// A network, whose address is read as by [`parsed`], and may have bits of a host, which are dropped. The API server accepts
/// `::ffff:10.0.0.0/104`, which means the IPv4 network.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let is_number = length.bytes().all(|digit| digit.is_ascii_digit());
    let length = length.parse().ok().filter(|_| is_number)?;
    let network = IpNet::new(address_of(address)?, length).ok()?.trunc();
    let plain = network.addr().to_canonical();
    if plain == network.addr() {
        return Some(network);
    }
    IpNet::new(plain, length - MAPPED).ok() // a shorter length leaves no mapped address
}

/// Length of the prefix of IPv4-mapped addresses.
const MAPPED: u8 = 96;

fn address_of(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().or_else(|_| without_leading_zeros(text).parse()).ok()
}

/// Each number of an address without them.
fn without_leading_zeros(text: &str) -> String {
    let (mut plain, mut is_within_number) = (String::new(), false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_leading = c == '0' && !is_within_number && rest.peek().is_some_and(char::is_ascii_hexdigit);
        if !is_leading {
            plain.push(c);
            is_within_number = c.is_ascii_hexdigit();
        }
    }
    plain
}

/// The beginning of a text for a message: an annotation may have 256 KiB.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(MOST_SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

/// Longest quotation.
const MOST_SHOWN: usize = 60;

pub(crate) fn port_number(path: String, number: i32) -> Result<u16> {
    match u16::try_from(number) {
        Ok(number) if number != 0 => Ok(number),
        _ => invalid(path, number, "a port from 1 to 65535"),
    }
}

pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

pub(crate) fn labels(metadata: &ObjectMeta) -> Labels {
    let labels = metadata.labels.iter().flatten();
    labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

/// Other values than true and false are errors, lest a misspelt one permit a bypass.
pub(crate) fn requires_proxy(metadata: &ObjectMeta) -> Result<bool> {
    match annotation(metadata, REQUIRE_PROXY).unwrap_or("false") {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(Invalid {
            path: format!("metadata.annotations[{REQUIRE_PROXY}]"),
            found: format!("{:?}", shown(other)),
            expected: "true or false",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// The API server accepts all of these.
    #[test]
    fn leading_zeros_are_decimal() {
        for (text, expected) in [
            ("010.0.0.1", "10.0.0.1"),
            ("10.000.00.010", "10.0.0.10"),
            ("0000000192.0.2.1", "192.0.2.1"),
            ("::ffff:010.0.0.1", "10.0.0.1"),
            ("02001:0db8::000001", "2001:db8::1"),
            ("0::00", "::"),
        ] {
            assert_eq!(parsed(text), ip(expected), "{text}");
        }
        let others = ["", "0", "10.0.0", "10.0.0.1.", "10.0..1", "0x10.0.0.1", "00256.0.0.1", "012345::", "fe80::1%0"];
        for wrong in others {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn networks_are_read_as_addresses_are() {
        for (text, expected) in [
            ("010.0.0.1/08", "10.0.0.0/8"),
            ("::ffff:10.1.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.0.0/96", "0.0.0.0/0"),
            ("::ffff:10.1.0.0/90", "::ffc0:0:0/90"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("02001:db8::/0032", "2001:db8::/32"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(network(text), Some(expected.parse().unwrap()), "{text}");
        }
        let others = ["10.0.0.1", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/-1", "10.0.0.0/8/8", "::/129"];
        for wrong in others {
            assert_eq!(network(wrong), None, "{wrong}");
        }
    }
}
