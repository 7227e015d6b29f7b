//! Istio's annotations of a pod, converted to rules. Defaults are those of Istio's injector.

use super::defaults;
use super::rules::Rules;
use super::text::{Result, Text};
use std::collections::BTreeMap;

/// Prefix of the annotations whose names `KNOWN` lists. Any other name with this prefix is an error.
const TRAFFIC: &str = "traffic.sidecar.istio.io/";
/// How Istio redirects: only REDIRECT, or nothing, is accepted.
const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";
/// The newer name of `kubevirtInterfaces`. If both are there, this one counts.
const VIRTUAL_INTERFACES: &str = "istio.io/reroute-virtual-interfaces";

const KNOWN: [&str; 8] = [
    "includeInboundPorts",
    "excludeInboundPorts",
    "includeOutboundIPRanges",
    "excludeOutboundIPRanges",
    "includeOutboundPorts",
    "excludeOutboundPorts",
    "excludeInterfaces",
    "kubevirtInterfaces",
];
const ONE_OF_THE_KNOWN: &str = "one of includeInboundPorts, excludeInboundPorts, includeOutboundIPRanges, \
    excludeOutboundIPRanges, includeOutboundPorts, excludeOutboundPorts, excludeInterfaces and kubevirtInterfaces";

/// The rules of a pod that has these annotations. Annotations that do not concern traffic are ignored.
pub fn rules(annotations: &BTreeMap<String, String>) -> Result<Rules> {
    let given = Annotations(annotations);
    given.check_names()?;
    given.read(INTERCEPTION_MODE, "", |mode| mode.mode())?;
    let excluded = given.traffic("excludeInboundPorts", "", |text| text.ports())?;
    Ok(Rules {
        include_outbound_ranges: given.traffic("includeOutboundIPRanges", "*", |text| text.all_or_ranges())?,
        exclude_outbound_ranges: given.traffic("excludeOutboundIPRanges", "", |text| text.ranges())?,
        include_outbound_ports: given.traffic("includeOutboundPorts", "", |text| text.ports())?,
        exclude_outbound_ports: given.traffic("excludeOutboundPorts", "", |text| text.ports())?,
        inbound_ports: given.traffic("includeInboundPorts", "*", |text| text.inbound_ports(with_own(excluded)))?,
        exclude_interfaces: given.traffic("excludeInterfaces", "", |text| text.interfaces())?,
        virtual_interfaces: given.virtual_interfaces()?,
        ..defaults::rules()
    })
}

fn with_own(mut excluded: Vec<u16>) -> Vec<u16> {
    excluded.retain(|port| !defaults::OWN_PORTS.contains(port));
    [defaults::OWN_PORTS.to_vec(), excluded].concat()
}

struct Annotations<'a>(&'a BTreeMap<String, String>);

impl Annotations<'_> {
    /// Refuses unknown names: a misspelt one would otherwise be ignored.
    fn check_names(&self) -> Result<()> {
        let of_traffic = self.0.keys().filter_map(|name| name.strip_prefix(TRAFFIC));
        match of_traffic.into_iter().find(|name| !KNOWN.contains(name)) {
            Some(name) => Text { name: &place(TRAFFIC), text: name }.wrong(name, ONE_OF_THE_KNOWN),
            None => Ok(()),
        }
    }

    fn traffic<T>(&self, name: &str, default: &str, read: impl FnOnce(&Text) -> Result<T>) -> Result<T> {
        self.read(&format!("{TRAFFIC}{name}"), default, read)
    }

    fn read<T>(&self, name: &str, default: &str, read: impl FnOnce(&Text) -> Result<T>) -> Result<T> {
        let text = self.0.get(name).map_or(default, String::as_str);
        read(&Text { name: &place(name), text })
    }

    fn virtual_interfaces(&self) -> Result<Vec<String>> {
        if self.0.contains_key(VIRTUAL_INTERFACES) {
            self.read(VIRTUAL_INTERFACES, "", |text| text.interfaces())
        } else {
            self.traffic("kubevirtInterfaces", "", |text| text.interfaces())
        }
    }
}

fn place(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}
