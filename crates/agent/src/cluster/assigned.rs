//! What a Service gives back for others to have: its addresses and the ports of nodes.

use k8s_openapi::api::core::v1::Service;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    uid: Option<String>,
    /// As the object has them: they are only compared with those of the same object.
    addresses: BTreeSet<String>,
    ports: BTreeSet<i32>,
}

impl Assigned {
    pub fn of(service: &Service) -> Assigned {
        let uid = service.metadata.uid.clone();
        let Some(spec) = &service.spec else { return Assigned { uid, ..Assigned::default() } };
        let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
        let listed = [&spec.cluster_ips, &spec.external_ips].into_iter().flatten().flatten();
        let addresses = listed.chain(&spec.cluster_ip).chain(ingress.filter_map(|one| one.ip.as_ref()));
        let ports = spec.ports.iter().flatten().filter_map(|port| port.node_port);
        Assigned {
            uid,
            addresses: addresses.cloned().collect(),
            ports: ports.chain(spec.health_check_node_port).collect(),
        }
    }

    /// Whether nothing has been given back since.
    pub fn includes(&self, earlier: &Assigned) -> bool {
        let has_addresses = self.addresses.is_superset(&earlier.addresses);
        self.uid == earlier.uid && has_addresses && self.ports.is_superset(&earlier.ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn assigned(uid: &str, spec: Value) -> Assigned {
        let ingress = json!({"loadBalancer": {"ingress": [{"ip": spec["balancer"]}]}});
        let object = json!({"metadata": {"name": "web", "uid": uid}, "spec": spec, "status": ingress});
        Assigned::of(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_service_has_what_it_had_until_it_gives_something_back() {
        let spec = |changed: &str, value: Value| {
            let mut spec = json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
                                  "externalIPs": ["192.0.2.1"], "balancer": "192.0.2.2",
                                  "ports": [{"port": 80, "nodePort": 30080}], "healthCheckNodePort": 30090});
            if !changed.is_empty() {
                spec[changed] = value;
            }
            spec
        };
        let before = assigned("u", spec("", Value::Null));
        for (changed, value) in [
            ("", Value::Null),
            ("sessionAffinity", json!("Sticky")),
            ("ports", json!([{"port": 0, "nodePort": 30080}, {"port": 81, "nodePort": 30081}])),
        ] {
            assert!(assigned("u", spec(changed, value)).includes(&before), "{changed}");
        }
        for (changed, value) in [
            ("clusterIPs", json!(["10.96.0.1"])),
            ("externalIPs", json!([])),
            ("balancer", json!("192.0.2.3")),
            ("ports", json!([{"port": 80, "nodePort": 30081}])),
            ("healthCheckNodePort", json!(30091)),
        ] {
            assert!(!assigned("u", spec(changed, value)).includes(&before), "{changed}");
        }
        assert!(!assigned("v", spec("", Value::Null)).includes(&before));
    }
}
