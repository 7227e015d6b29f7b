//! Kubernetes' YAML, valid and invalid.

use sidestep_mesh::address::Protocol;
use sidestep_mesh::object::{Object, Selection, Service, Skipped, Slice};
use sidestep_mesh::yaml;
use std::net::IpAddr;

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, creationTimestamp: '2026-01-02T03:04:05Z'}
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.10, 'fd00:96::10']
  externalIPs: [192.0.2.1]
  internalTrafficPolicy: Local
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
  ports:
  - {name: http, port: 80, targetPort: http, nodePort: 30080}
  - {name: dns, port: 53, protocol: UDP}
  - {name: tel, port: 5060, protocol: SCTP}
status: {loadBalancer: {ingress: [{ip: 192.0.2.2}, {ip: 192.0.2.3, ipMode: Proxy}, {hostname: lb.example}]}}
";

const SLICE: &str = "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-abc
  namespace: shop
  labels: {kubernetes.io/service-name: web}
  annotations: {sidestep.dev/weights: '10.1.0.1=3'}
addressType: IPv4
ports:
- {name: http, port: 8080}
- {name: any}
endpoints:
- {addresses: [10.1.0.1], nodeName: a, zone: east, hints: {forZones: [{name: east}], forNodes: [{name: a}]}}
- {addresses: [10.1.0.2], conditions: {ready: false, serving: true, terminating: true}}
";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn service(text: &str) -> Service {
    match yaml::parse(text).unwrap().pop() {
        Some(Object::Service(service)) => service,
        other => panic!("{other:?}"),
    }
}

fn slice(text: &str) -> Slice {
    match yaml::parse(text).unwrap().pop() {
        Some(Object::Slice(slice)) => slice,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_service_with_everything() {
    let found = service(SERVICE);
    assert_eq!(found.name.to_string(), "shop/web");
    assert_eq!(found.cluster_ips, [ip("10.96.0.10"), ip("fd00:96::10")]);
    assert_eq!((found.external_ips, found.load_balancer_ips), (vec![ip("192.0.2.1")], vec![ip("192.0.2.2")]));
    assert!(found.source_ranges.is_empty() && !found.external_local);
    assert_eq!((found.affinity_seconds, found.internal_local), (Some(60), true));
    let ports: Vec<_> = found.ports.iter().map(|p| (&*p.name, p.protocol, p.port, p.node_port)).collect();
    assert_eq!(ports, [("http", Protocol::Tcp, 80, Some(30080)), ("dns", Protocol::Udp, 53, None)]);
    let left: Vec<_> = found.left.iter().map(|left| left.what.as_str()).collect();
    assert_eq!(left, ["port 5060", "192.0.2.3"]);
    assert_eq!(found.created, "2026-01-02T03:04:05Z");
}

/// The API server accepts any number, and kube-proxy ignores such ports.
#[test]
fn a_port_that_does_not_exist_hides_no_other_port_of_its_slice() {
    for wrong in [0, -1, 65_536, i32::MAX] {
        let ports =
            format!("ports: [{{name: odd, protocol: TCP, port: {wrong}}}, {{name: http, protocol: TCP, port: 8080}}]");
        let text = format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: web-abc, namespace: shop,
             labels: {{kubernetes.io/service-name: web}}}}, addressType: IPv4, {ports}, endpoints: [{{addresses: [10.1.0.1]}}]}}"
        );
        let found = slice(&text);
        assert_eq!(found.ports.iter().map(|p| (&*p.name, p.port)).collect::<Vec<_>>(), [("http", 8080)], "{wrong}");
        assert_eq!(found.left[0].what, format!("endpoints' port {wrong}"));
    }
}

#[test]
fn a_slice_with_everything() {
    let found = slice(SLICE);
    assert_eq!((found.name.to_string(), &*found.service), ("shop/web-abc".into(), "web"));
    assert_eq!(found.ports.iter().map(|p| (&*p.name, p.port)).collect::<Vec<_>>(), [("http", 8080)]);
    assert_eq!(found.weights.into_iter().collect::<Vec<_>>(), [(ip("10.1.0.1"), 3)]);
    let [first, second] = &found.endpoints[..] else { panic!("{:?}", found.endpoints) };
    assert!(first.ready && first.serving && !first.terminating && first.node.as_deref() == Some("a"));
    assert!(first.zone_hints.contains("east") && first.node_hints.contains("a"));
    assert!(!second.ready && second.serving && second.terminating && second.node.is_none());
}

/// The API's defaults: an endpoint without conditions is ready, serves and does not terminate.
#[test]
fn conditions_that_are_not_given_have_the_defaults_of_the_api() {
    let conditions = |given: &str| {
        let with = format!("conditions: {given}");
        let found = slice(&SLICE.replace("conditions: {ready: false, serving: true, terminating: true}", &with));
        let endpoint = &found.endpoints[1];
        (endpoint.ready, endpoint.serving, endpoint.terminating)
    };
    assert_eq!(conditions("{}"), (true, true, false));
    assert_eq!(conditions("{ready: false}"), (false, true, false));
    assert_eq!(conditions("{ready: false, terminating: true}"), (false, true, true));
    assert_eq!(conditions("{serving: false}"), (true, false, false));
}

#[test]
fn an_ipv4_address_in_ipv6_clothes_is_ipv4() {
    let mapped = |text: &str| text.replace("10.96.0.10", "'::ffff:10.96.0.10'").replace("10.1.0.", "::ffff:10.1.0.");
    assert_eq!(service(&mapped(SERVICE)).cluster_ips[0], ip("10.96.0.10"));
    let found = slice(&mapped(&SLICE.replace("[10.1.0.1]", "['10.1.0.1']").replace("[10.1.0.2]", "['10.1.0.2']")));
    assert_eq!(found.endpoints[0].address, ip("10.1.0.1"));
    assert_eq!(found.weights.into_iter().collect::<Vec<_>>(), [(ip("10.1.0.1"), 3)]);
}

#[test]
fn what_needs_no_proxy_has_no_frontend() {
    let headless = "{apiVersion: v1, kind: Service, metadata: {name: h}, spec: {clusterIP: None, ports: [{port: 80}]}}";
    assert!(service(headless).cluster_ips.is_empty());
    let named =
        "{apiVersion: v1, kind: Service, metadata: {name: n}, spec: {type: ExternalName, externalName: a.example}}";
    assert!(service(named).ports.is_empty());
    let odd = SERVICE.replace("LoadBalancer", "ExternalName").replace("192.0.2.1]", "'010.0.0.1', '1']");
    let odd = service(&odd.replace("sessionAffinity: ClientIP", "sessionAffinity: Sticky"));
    assert!(odd.ports.is_empty() && odd.external_ips.is_empty() && odd.cluster_ips.is_empty() && odd.left.is_empty());
    let label = "labels: {service.kubernetes.io/service-proxy-name: mine}";
    let labelled = |label: &str| {
        service(&format!(
            "{{apiVersion: v1, kind: Service, spec: {{clusterIP: 10.96.0.1, ports: [{{port: 80}}], type: LoadBalancer, \
             externalTrafficPolicy: Local, healthCheckNodePort: 31000}}, metadata: {{name: f, {label}}}}}"
        ))
    };
    let (ours, foreign) = (labelled(""), labelled(label));
    assert!(ours.ports.len() == 1 && ours.health_check_port == Some(31_000));
    assert!(foreign.ports.is_empty() && foreign.health_check_port.is_none() && foreign.left.len() == 1);
}

#[test]
fn annotations_choose_the_selection() {
    for (name, expected) in [
        ("random", Selection::Random),
        ("weighted", Selection::Weighted),
        ("least-connections", Selection::LeastConnections),
    ] {
        let text = format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: s, annotations: {{sidestep.dev/selection: {name}}}}}, spec: {{}}}}"
        );
        assert_eq!(service(&text).selection, expected);
    }
}

#[test]
fn a_wrong_annotation_is_remarked_and_costs_nothing_else() {
    let remark = |left: &Skipped| format!("{}: {}", left.what, left.why);
    let text = SERVICE.replace("shop,", "shop, annotations: {sidestep.dev/selection: best},");
    let found = service(&text);
    assert_eq!((found.selection, found.ports.len()), (Selection::Random, 2));
    let expected = "annotation sidestep.dev/selection \"best\": random, for it is none of random, weighted and \
        least-connections";
    assert_eq!(remark(found.left.last().unwrap()), expected);
    for wrong in ["10.1.0.1:3", "10.1.0.1=-1", "10.1.0.1=65536", "here=3", ""] {
        let found = slice(&SLICE.replace("10.1.0.1=3", &format!("10.1.0.2=5,{wrong}")));
        assert_eq!(found.weights.into_iter().collect::<Vec<_>>(), [(ip("10.1.0.2"), 5)]);
        let expected = format!(
            "annotation sidestep.dev/weights {wrong:?}: weight 1, for it is no ADDRESS=WEIGHT with a weight from 0 to 65535"
        );
        assert_eq!(found.left.iter().map(remark).collect::<Vec<_>>(), [expected]);
    }
    let long = slice(&SLICE.replace("10.1.0.1=3", &"x".repeat(1000)));
    assert!(remark(&long.left[0]).len() < 200, "{:?}", long.left);
}

/// As an error it would keep everything else as it was.
#[test]
fn an_external_address_that_cannot_be_read_is_left_out() {
    let text = SERVICE.replace("192.0.2.1]", "192.0.2, 192.0.2.1]").replace("192.0.2.2}", "here}, {ip: 192.0.2.4}");
    let found = service(&text);
    assert_eq!((found.external_ips, found.load_balancer_ips), (vec![ip("192.0.2.1")], vec![ip("192.0.2.4")]));
    let left: Vec<_> = found.left.iter().map(|left| left.what.as_str()).collect();
    for what in ["spec.externalIPs[0] \"192.0.2\"", "status.loadBalancer.ingress[0].ip \"here\""] {
        assert!(left.contains(&what), "{left:?}");
    }
}

/// The API server reads them by the rules of Go's older versions.
#[test]
fn addresses_with_leading_zeros_are_read() {
    let text = SERVICE.replace("192.0.2.1]", "'192.000.02.1']\n  loadBalancerSourceRanges: ['010.0.0.1/08']");
    let found = service(&text);
    assert_eq!(found.external_ips, [ip("192.0.2.1")]);
    assert_eq!(found.source_ranges[0].to_string(), "10.0.0.0/8");
    let ranges = |listed: &str| {
        let text = SERVICE.replace("192.0.2.1]", &format!("192.0.2.1]\n  loadBalancerSourceRanges: [{listed}]"));
        service(&text).source_ranges.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(ranges("10.0.0.0/8, 0.0.0.0/0, 'fd00::/8'"), ["fd00::/8"], "for everybody by IPv4");
    assert_eq!(ranges("10.0.0.0/8, '::/0', '::ffff:192.0.2.0/120'"), ["10.0.0.0/8", "192.0.2.0/24"]);
}

#[test]
fn several_documents_and_lists() {
    let list = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {}}]}";
    assert_eq!(yaml::parse(&format!("---\n{SERVICE}\n---\n{SLICE}\n---\n---\n{list}\n")).unwrap().len(), 3);
    assert_eq!(yaml::parse("# nothing but a comment\n").unwrap(), []);
}

#[test]
fn a_list_is_read_as_strictly() {
    let list =
        |rest: &str| yaml::parse(&format!("{{apiVersion: v1, kind: List, {rest}}}")).map(|objects| objects.len());
    let wrong = |rest: &str| list(rest).unwrap_err().to_string();
    assert_eq!(list("items: [], metadata: {resourceVersion: ''}"), Ok(0));
    assert_eq!(wrong("metadata: {}"), "document 1: missing field `items`");
    assert_eq!(wrong("items: {}"), "document 1: items: invalid type: map, expected a sequence");
    assert_eq!(wrong("items: null"), "document 1: items: invalid type: null, expected a sequence");
    assert_eq!(wrong("items: [], item: []"), "document 1: item: no such field");
    let item = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {port: 1}}";
    assert_eq!(wrong(&format!("items: [{item}]")), "document 1: items[0].spec.port: no such field");
}

/// The second one would silently count.
#[test]
fn a_key_that_is_there_twice_is_refused() {
    let error = |text: &str| yaml::parse(text).unwrap_err().to_string();
    let twice = SERVICE.replace("  type:", "  clusterIPs: [10.96.0.9]\n  type:");
    assert_eq!(error(&twice), "document 1: spec: \"clusterIPs\" is there twice at line 6 column 3");
    let deep = SERVICE.replace("port: 53,", "port: 53, port: 54,");
    assert!(error(&deep).starts_with("document 1: spec.ports[1]: \"port\" is there twice"), "{}", error(&deep));
    let json = r#"{"apiVersion": "v1", "kind": "Service", "kind": "Service", "metadata": {"name": "a"}}"#;
    assert!(error(json).contains("\"kind\" is there twice"), "{}", error(json));
    let second =
        format!("{SERVICE}---\n{}", SLICE.replace("addressType: IPv4", "addressType: IPv4\naddressType: IPv4"));
    assert!(error(&second).starts_with("document 2: \"addressType\" is there twice"), "{}", error(&second));
}

/// Each error names its document, its path and what was expected.
#[test]
fn what_is_wrong_is_named() {
    let cases = [
        ("nodePort: 30080", "nodeProt: 30080", "document 1: spec.ports[0].nodeProt: no such field"),
        ("port: 53", "port: many", "document 1: spec.ports[1].port: invalid type: string \"many\", expected i32"),
        ("port: 53", "port: 70000", "document 1: spec.ports[1].port: 70000 where a port from 1 to 65535 is expected"),
        (
            "protocol: UDP",
            "protocol: UPD",
            "document 1: spec.ports[1].protocol: \"UPD\" where TCP, UDP or SCTP is expected",
        ),
        ("[10.96.0.10,", "[10.96.0,", "document 1: spec.clusterIPs[0]: \"10.96.0\" where an IP address is expected"),
        (
            "timeoutSeconds: 60",
            "timeoutSeconds: 0",
            "document 1: spec.sessionAffinityConfig.clientIP.timeoutSeconds: 0 where 1 to 86400 seconds is expected",
        ),
        ("ClientIP\n", "Client\n", "document 1: spec.sessionAffinity: \"Client\" where None or ClientIP is expected"),
        (
            "kind: Service",
            "kind: Servise",
            "document 1: apiVersion, kind: \"v1\" \"Servise\" where v1 Service, Pod or Namespace, discovery.k8s.io/v1 EndpointSlice, networking.k8s.io/v1 NetworkPolicy, or sidestep.dev/v1 Capture or Policy is expected",
        ),
        ("name: web,", "", "document 1: metadata.name: () where a name is expected"),
    ];
    for (right, wrong, expected) in cases {
        assert!(SERVICE.contains(right), "{right}");
        assert_eq!(yaml::parse(&SERVICE.replacen(right, wrong, 1)).unwrap_err().to_string(), expected);
    }
    let second = format!("{SERVICE}\n---\n{}", SLICE.replace("10.1.0.2", "fd00::2"));
    let expected =
        "document 2: endpoints[1].addresses[0]: fd00::2 where an address of the slice's addressType is expected";
    assert_eq!(yaml::parse(&second).unwrap_err().to_string(), expected);
    assert!(yaml::parse("a: [").unwrap_err().to_string().starts_with("document 1: "));
}

/// The API server refuses them, too.
#[test]
fn endpoints_are_no_special_addresses() {
    let with = |ip: &str| {
        let family = if ip.contains(':') && !ip.starts_with("::ffff:") { "IPv6" } else { "IPv4" };
        SLICE
            .replace("{addresses: [10.1.0.1],", &format!("{{addresses: ['{ip}'],"))
            .replace("addressType: IPv4", &format!("addressType: {family}"))
    };
    for ip in [
        "127.0.0.1",
        "127.255.0.9",
        "0.0.0.0",
        "169.254.169.254",
        "224.0.0.251",
        "::",
        "::1",
        "fe80::1",
        "febf::1",
        "ff02::fb",
        "ff12::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.1.1",
    ] {
        let wrong = yaml::parse(&with(ip)).unwrap_err().to_string();
        let expected = "endpoints[0].addresses[0]: ";
        assert!(wrong.contains(expected) && wrong.contains("nor loopback nor link-local"), "{ip}: {wrong}");
    }
    // Addresses that the API server accepts are left out and reported.
    for ip in ["239.1.2.3", "255.255.255.255"] {
        let found = slice(&with(ip));
        assert_eq!(found.endpoints.iter().map(|e| e.address).collect::<Vec<_>>(), [self::ip("10.1.0.2")], "{ip}");
        assert_eq!(found.left[0].what, format!("endpoint {ip}"));
    }
    assert_eq!(slice(&with("169.253.0.1")).endpoints.len(), 2);
}

#[test]
fn what_is_labelled_headless_is_left_to_dns() {
    for label in ["service.kubernetes.io/headless", "service.kubernetes.io/service-proxy-name"] {
        let labelled = SLICE.replace("labels: {", &format!("labels: {{{label}: '', "));
        assert_eq!(yaml::parse(&labelled).unwrap(), [], "{label}");
        let labelled = SERVICE.replace("namespace: shop,", &format!("namespace: shop, labels: {{{label}: ''}},"));
        let found = service(&labelled);
        assert!(found.ports.is_empty() && found.left[0].what == "shop/web", "{label}: {found:?}");
    }
}
