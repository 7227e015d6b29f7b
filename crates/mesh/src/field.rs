//! Fields that several kinds of Kubernetes objects have.

use crate::labels::Labels;
use crate::name::Name;
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

/// `::ffff:a.b.c.d` is IPv4, as in Go and therefore in Kubernetes.
pub(crate) fn parsed(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

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
            found: format!("{other:?}"),
            expected: "true or false",
        }),
    }
}
