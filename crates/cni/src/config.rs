//! The network configuration that a runtime writes to standard input.

use crate::error::PluginError;
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::value::RawValue;
use sidestep_agent_api::{Attachment, DEFAULT_SOCKET};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Versions of the specification. Flannel and Calico write 0.3.1, whose results have the fields that later ones have.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// A machine that starts a hundred pods at once admits the last one within seconds.
pub const TIMEOUT_SECONDS: u64 = 15;
/// Less than this leaves the agent no time.
pub const LEAST_SECONDS: u64 = 2;
/// The kubelet gives a runtime two minutes.
pub const MOST_SECONDS: u64 = 110;
/// Of the pod's, which policies need. No plugin gives more.
const MOST_ADDRESSES: usize = 64;

/// A network configuration. Fields that are not ours are those of the runtime and of other plugins.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Missing in configurations of old versions.
    #[serde(default)]
    pub cni_version: String,
    #[serde(default)]
    pub name: String,
    agent_socket: Option<PathBuf>,
    timeout_seconds: Option<u64>,
    /// As it came.
    prev_result: Option<Box<RawValue>>,
    /// For GC.
    #[serde(rename = "cni.dev/valid-attachments")]
    valid: Option<Vec<Valid>>,
    /// The same, as a version of the specification called it.
    #[serde(rename = "cni.dev/attachments")]
    also_valid: Option<Vec<Valid>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Valid {
    #[serde(rename = "containerID")]
    container: String,
    #[serde(rename = "ifname")]
    interface: String,
}

/// Of all versions.
#[derive(Deserialize)]
struct PrevResult {
    #[serde(default)]
    ips: Vec<Ip>,
}

#[derive(Deserialize)]
struct Ip {
    address: IpNet,
}

impl Config {
    pub fn read(text: &[u8]) -> Result<Config, PluginError> {
        serde_json::from_slice(text).map_err(PluginError::Decode)
    }

    pub fn check_version(&self) -> Result<(), PluginError> {
        if VERSIONS.contains(&self.cni_version.as_str()) {
            return Ok(());
        }
        Err(PluginError::Version(self.cni_version.chars().take(40).collect()))
    }

    /// The network's name.
    pub fn network(&self) -> Result<&str, PluginError> {
        if self.name.is_empty() { Err(PluginError::Missing { field: "name" }) } else { Ok(&self.name) }
    }

    pub fn socket(&self) -> PathBuf {
        self.agent_socket.clone().unwrap_or_else(|| DEFAULT_SOCKET.into())
    }

    pub fn timeout(&self) -> Result<Duration, PluginError> {
        let seconds = self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
        if (LEAST_SECONDS..=MOST_SECONDS).contains(&seconds) {
            return Ok(Duration::from_secs(seconds));
        }
        Err(PluginError::Timeout { found: seconds, least: LEAST_SECONDS, most: MOST_SECONDS })
    }

    /// The result of the plugins before this one.
    pub fn prev_result(&self) -> Result<&RawValue, PluginError> {
        let given = self.prev_result.as_deref().filter(|given| given.get() != "null");
        given.ok_or(PluginError::NotChained)
    }

    /// The addresses that they have given to the pod.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, PluginError> {
        let result: PrevResult = serde_json::from_str(self.prev_result()?.get()).map_err(PluginError::PrevResult)?;
        Ok(result.ips.into_iter().take(MOST_ADDRESSES).map(|ip| ip.address.addr()).collect())
    }

    /// For GC: what still exists.
    pub fn valid(&self) -> Result<Vec<Attachment>, PluginError> {
        let valid = self.valid.as_ref().or(self.also_valid.as_ref());
        let valid = valid.ok_or(PluginError::Missing { field: "cni.dev/valid-attachments" })?;
        let network = self.network()?;
        let attachment = |Valid { container, interface }: &Valid| Attachment {
            network: network.into(),
            container: container.clone(),
            interface: interface.clone(),
        };
        Ok(valid.iter().map(attachment).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config(value: Value) -> Config {
        Config::read(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn addresses_of_all_versions_are_read() {
        for (version, ip) in [
            ("0.3.1", json!({"version": "4", "address": "10.1.0.5/16", "interface": 0})),
            ("0.4.0", json!({"version": "4", "address": "10.1.0.5/16", "interface": 2})),
            ("1.1.0", json!({"address": "10.1.0.5/16", "gateway": "10.1.0.1"})),
        ] {
            let read = config(json!({"cniVersion": version, "name": "n", "prevResult": {"ips": [ip]}}));
            read.check_version().unwrap();
            assert_eq!(read.addresses().unwrap(), ["10.1.0.5".parse::<IpAddr>().unwrap()], "{version}");
        }
        assert!(config(json!({"prevResult": {}})).addresses().unwrap().is_empty());
        assert!(matches!(config(json!({"prevResult": {"ips": [{}]}})).addresses(), Err(PluginError::PrevResult(_))));
        assert!(matches!(config(json!({"prevResult": null})).addresses(), Err(PluginError::NotChained)));
    }

    #[test]
    fn the_previous_result_stays_what_it_was() {
        let text = r#"{ "b":1.10, "a" : [ ], "b" : 2e0 }"#;
        let read = Config::read(format!(r#"{{"prevResult": {text} }}"#).as_bytes()).unwrap();
        assert_eq!(read.prev_result().unwrap().get(), text);
    }

    #[test]
    fn other_versions_and_times_are_refused() {
        for version in ["", "0.2.0", "1.2.0", "2"] {
            assert!(config(json!({"cniVersion": version})).check_version().is_err(), "{version}");
        }
        for (seconds, is_right) in [(1, false), (2, true), (110, true), (111, false)] {
            assert_eq!(config(json!({"timeoutSeconds": seconds})).timeout().is_ok(), is_right, "{seconds}");
        }
    }

    #[test]
    fn valid_attachments_have_either_name_and_are_not_optional() {
        let one = json!([{"containerID": "c", "ifname": "eth0"}]);
        for name in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            assert_eq!(config(json!({"name": "n", name: one})).valid().unwrap()[0].container, "c", "{name}");
        }
        let both = json!({"name": "n", "cni.dev/valid-attachments": one, "cni.dev/attachments": []});
        assert_eq!(config(both).valid().unwrap().len(), 1);
        // Nothing is forgotten if a runtime names nothing.
        assert!(matches!(config(json!({"name": "n"})).valid(), Err(PluginError::Missing { .. })));
    }
}
