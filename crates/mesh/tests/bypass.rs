//! The bypass of the proxies, as Services ask for it.

use sidestep_mesh::address::Endpoint;
use sidestep_mesh::bypass::{BypassFlags, backend_key, plan};
use sidestep_mesh::choose::Node;
use sidestep_mesh::state::{Change, State};
use sidestep_mesh::yaml;

const BOTH: BypassFlags = BypassFlags { outbound: true, inbound: true };

/// A Service of the namespace `shop` that asks for the bypass, with these endpoints.
fn service(endpoints: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: db, namespace: shop, annotations: \
         {{sidestep.dev/bypass-proxy: 'true'}}}}\nspec: {{clusterIP: 10.96.0.1, ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: db-1, namespace: shop, labels: \
         {{kubernetes.io/service-name: db}}}}\naddressType: IPv4\nports: [{{port: 8080}}]\nendpoints: [{{addresses: \
         [{endpoints}]}}]\n---\n"
    )
}

fn pod(namespace: &str, name: &str, ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{containers: \
         []}}\nstatus: {{podIPs: [{{ip: {ip}}}]}}\n---\n"
    )
}

/// The flags of the Service's frontend and of this address.
fn flags(text: &str, ip: &str) -> [BypassFlags; 2] {
    let mut state = State::default();
    for object in yaml::parse(text).unwrap() {
        state.apply(Change::Put(object));
    }
    let flags = plan(&state, &Node { name: "here".into(), zone: None, external: false }, |_, _| true).bypasses;
    let at = |ip: &str, port| backend_key(Endpoint::new(ip.parse().unwrap(), port));
    [at("10.96.0.1", 80), at(ip, 8080)].map(|key| flags.get(&key).copied().unwrap_or_default())
}

const BY_NAME: BypassFlags = BypassFlags { outbound: true, inbound: false };

#[test]
fn an_endpoint_is_led_around_by_its_own_address_if_it_is_a_pod_of_the_namespace() {
    let all = service("10.0.0.1") + &pod("shop", "db-1", "10.0.0.1");
    assert_eq!(flags(&all, "10.0.0.1"), [BY_NAME, BOTH]);
}

/// Anybody who may create a Service may name any address as its endpoint.
#[test]
fn nobody_leads_others_around_a_proxy_by_naming_an_address_that_is_not_his() {
    let whose = [
        String::new(),
        pod("bank", "vault", "10.0.0.1"),
        pod("bank", "vault", "10.0.0.1") + &pod("shop", "db-1", "10.0.0.1"),
    ];
    for pods in whose {
        assert_eq!(flags(&(service("10.0.0.1") + &pods), "10.0.0.1"), [BY_NAME, BypassFlags::default()], "{pods}");
    }
}
