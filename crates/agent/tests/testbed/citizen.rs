//! What an agent tells a cluster of itself: probes, metrics of the process and of its watches, Events, logs.

use crate::agent::{Node, VIP};
use crate::api_server::{EVENTS, NAMESPACES, PODS, PORT, SERVICES, Server, World, service};
use crate::yaml;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("nothing")
}

/// The value of a metric without labels, or with these.
fn value(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[test]
fn an_agent_is_ready_when_everything_is_in_force() {
    let (mut node, world) = (Node::new(), World::new());
    world.refuse(SERVICES, true);
    let _api = Server::start(&world, &node.testbed.node);
    let kubeconfig = node.kubeconfig(PORT);
    node.spawn(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
    node.wait(|node| node.status().is_ok_and(|status| !status.source.troubles.is_empty()));
    let (alive, ready) = (node.get("/healthz"), node.get("/readyz"));
    assert_eq!((status(&alive), status(&ready)), ("200", "503"), "{ready}");
    assert!(ready.contains("[-] everything that can be read has been read"), "{ready}");
    world.refuse(SERVICES, false);
    node.wait_until_attached();
    node.wait(|node| status(&node.get("/readyz")) == "200");
    // What is in force stays in force without a server.
    drop(_api);
    node.wait(|node| !node.status().unwrap().source.troubles.is_empty());
    assert_eq!((status(&node.get("/healthz")), status(&node.get("/readyz"))), ("200", "200"));
}

#[test]
fn metrics_of_the_process_have_their_usual_names() {
    let mut node = Node::new();
    node.file("web.yaml", &yaml::service("web", VIP, 80, ""));
    node.start();
    let text = node.metrics();
    let of = |name: &str| value(&text, name).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    assert!(of("process_cpu_seconds_total") > 0.0 && of("process_threads") > 1.0);
    let (resident, expected) = (of("process_resident_memory_bytes"), node.resident_kib() as f64 * 1024.0);
    assert!((expected / 2.0..expected * 2.0).contains(&resident), "{resident} {expected}");
    assert!(of("process_virtual_memory_bytes") > resident);
    assert!((4.0..of("process_max_fds")).contains(&of("process_open_fds")));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - of("process_start_time_seconds");
    assert!((-2.0..120.0).contains(&age), "{age}");
    let version = format!("sidestep_build_info{{version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{text}");
    assert!(of("sidestep_reconcile_duration_seconds_count") >= 1.0, "{text}");
    assert!(text.contains("sidestep_reconcile_duration_seconds_bucket{le=\"+Inf\"}"), "{text}");
    assert!(!text.contains("microseconds"), "{text}");
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
}

#[test]
fn the_staleness_of_each_watch_is_known() {
    let (mut node, world) = (Node::new(), World::new());
    let server = Server::start(&world, &node.testbed.node);
    let kubeconfig = node.kubeconfig(PORT);
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--zone", "a"]);
    let age = |node: &Node, resource: &str| {
        value(&node.metrics(), &format!("sidestep_watch_staleness_seconds{{resource=\"{resource}\"}}"))
    };
    assert_eq!((age(&node, "pods"), age(&node, "nodes")), (None, None), "they are not watched");
    node.wait(|node| age(node, "services").unwrap() > 1.0);
    let slices = age(&node, "endpointslices").unwrap();
    world.put(SERVICES, service("web", VIP));
    node.wait(|node| node.show("web").is_ok());
    assert!(age(&node, "services").unwrap() < 1.0);
    assert!(age(&node, "endpointslices").unwrap() >= slices, "nothing was heard of them");
    drop(server);
    node.wait(|node| age(node, "services").unwrap() > 2.0);
}

fn events(world: &World, reason: &str) -> Vec<Value> {
    world.all(EVENTS).into_iter().filter(|event| event["reason"] == reason).collect()
}

#[test]
fn troubles_are_events_of_pods_and_of_the_node() {
    let (mut node, world) = (Node::new(), World::new());
    let pod = node.routed();
    world.put(NAMESPACES, json!({"metadata": {"name": "default"}}));
    world.put(
        PODS,
        json!({"metadata": {"name": "second", "namespace": "default", "uid": "the-uid"},
                           "spec": {"nodeName": "node", "containers": []}, "status": {}}),
    );
    world.put(SERVICES, service("web", VIP));
    world.put(SERVICES, service("thief", VIP));
    node.captured("first", &pod);
    node.captured("second", &pod);
    let _api = Server::start(&world, &node.testbed.node);
    let (kubeconfig, captures) = (node.kubeconfig(PORT), node.services());
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--captures", captures.to_str().unwrap()]);
    let of_second = |world: &World| {
        let about = |event: &Value| event["regarding"]["name"] == "second";
        events(world, "CaptureTrouble").into_iter().find(about)
    };
    node.wait(|_| of_second(&world).is_some() && !events(&world, "AddressConflict").is_empty());
    let event = of_second(&world).unwrap();
    assert_eq!(
        (&event["regarding"]["kind"], &event["regarding"]["uid"]),
        (&"Pod".into(), &"the-uid".into()),
        "{event}"
    );
    assert!(event["note"].as_str().unwrap().contains("default/first"), "{event}");
    assert_eq!((&event["type"], &event["reportingController"]), (&"Warning".into(), &"sidestep.dev/agent".into()));
    let conflict = &events(&world, "AddressConflict")[0];
    assert_eq!((&conflict["regarding"]["kind"], &conflict["regarding"]["name"]), (&"Node".into(), &"node".into()));
    assert!(conflict["note"].as_str().unwrap().contains("belongs to default/"), "{conflict}");
    // An invalid object is an Event of the node, once.
    for port in ["a", "b"] {
        let mut wrong = service("wrong", "10.96.0.99");
        wrong["spec"]["sessionAffinity"] = port.into();
        world.put(SERVICES, wrong);
        node.wait(|node| node.status().unwrap().source.troubles.iter().any(|t| t.what.contains(&format!("{port:?}"))));
    }
    node.wait(|_| !events(&world, "InvalidObject").is_empty());
    assert_eq!(events(&world, "InvalidObject").len(), 1, "the second one comes too soon");
}

/// One Service has as many addresses as the table of all Services has entries. A load balancer's controller writes them, and the API
/// server limits only the size of the object.
#[test]
fn a_service_for_which_a_table_has_no_room_is_an_event_of_the_node() {
    let (mut node, world) = (Node::new(), World::new());
    let _api = Server::start(&world, &node.testbed.node);
    let kubeconfig = node.kubeconfig(PORT);
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
    let room = value(&node.metrics(), "sidestep_map_capacity{map=\"frontends\"}").expect("the table's size") as u32;
    let mut crowd = service("crowd", "10.96.0.99");
    let address = |number: u32| json!({"ip": Ipv4Addr::from(0x0b00_0000 + number).to_string()});
    crowd["status"]["loadBalancer"]["ingress"] = (0..room).map(address).collect();
    world.put(SERVICES, crowd);
    node.wait(|_| !events(&world, "ResourceExhaustion").is_empty());
    let event = &events(&world, "ResourceExhaustion")[0];
    let about = (&event["regarding"]["kind"], &event["regarding"]["name"], &event["type"]);
    assert_eq!(about, (&"Node".into(), &"node".into(), &"Warning".into()), "{event}");
    let note = "Service default/crowd: default/crowd TCP is left to the kernel: there is no more room for frontends";
    assert_eq!(event["note"], note, "{event}");
    // Other Services have room.
    world.put(SERVICES, service("web", VIP));
    node.wait(|node| node.show("web").is_ok_and(|shown| shown.problems.is_empty() && !shown.ports.is_empty()));
    assert_eq!(node.show("crowd").unwrap().ports.len(), 0);
}

#[test]
fn where_events_are_not_permitted_that_is_said_once() {
    let (mut node, world) = (Node::new(), World::new());
    world.put(SERVICES, service("web", VIP));
    world.put(SERVICES, service("thief", VIP));
    world.refuse(EVENTS, true);
    let _api = Server::start(&world, &node.testbed.node);
    let kubeconfig = node.kubeconfig(PORT);
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--log-format", "json"]);
    let said = |node: &Node| node.log().matches("there will be no Kubernetes Events").count();
    node.wait(|node| said(node) == 1);
    let mut wrong = service("wrong", "10.96.0.99");
    wrong["spec"]["sessionAffinity"] = "a".into();
    world.put(SERVICES, wrong);
    node.wait(|node| !node.status().unwrap().source.troubles.is_empty());
    assert_eq!(said(&node), 1);
    assert!(world.all(EVENTS).is_empty());
    // Every line of the log is an object.
    for line in node.log().lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(["timestamp", "level", "message"].iter().all(|field| event[field].is_string()), "{line}");
    }
    assert!(
        node.log().contains("give the agent's ClusterRole the verbs create and patch for events"),
        "{}",
        node.log()
    );
}

/// As kube-proxy answers; a load balancer looks at the status only.
#[test]
fn health_check_node_ports_say_whether_endpoints_are_here() {
    let mut node = Node::new();
    let [here, elsewhere] = [node.testbed.pod(), node.testbed.pod()];
    let text = |local: &str, port: u16| {
        let service = format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: web, namespace: default}}, spec: {{type: LoadBalancer, \
             clusterIPs: [{VIP}], externalTrafficPolicy: Local, healthCheckNodePort: {port}, ports: [{{port: 80}}]}}}}\n"
        );
        let endpoint = |pod: &sidestep_testkit::Pod, name: &str| {
            format!("{{addresses: [{}], nodeName: {name}, conditions: {{ready: true}}}}", pod.v4)
        };
        service
            + &format!(
                "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{name: web-1, \
                 namespace: default, labels: {{kubernetes.io/service-name: web}}}}, ports: [{{port: 8080}}], \
                 endpoints: [{}, {}]}}\n",
                endpoint(&here, local),
                endpoint(&elsewhere, "other")
            )
    };
    node.file("web.yaml", &text("node", 32100));
    let services = node.services();
    node.start_with(&["--config", services.to_str().unwrap(), "--health-check-node-ports"]);
    let ask = |node: &Node, port: u16| node.get_at("127.0.0.1", port, "/healthz");
    node.wait(|node| ask(node, 32100).is_some());
    let answer = ask(&node, 32100).unwrap();
    assert_eq!(status(&answer), "200", "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
    let expected = json!({"service": {"namespace": "default", "name": "web"}, "localEndpoints": 1,
                          "serviceProxyHealthy": true});
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), expected);
    // Its only endpoint here goes.
    node.file("web.yaml", &text("third", 32100));
    node.wait(|node| status(&ask(node, 32100).unwrap()) == "503");
    // Another port; and in the end none.
    node.file("web.yaml", &text("node", 32101));
    node.wait(|node| ask(node, 32100).is_none() && ask(node, 32101).is_some_and(|answer| status(&answer) == "200"));
    std::fs::remove_file(node.services().join("web.yaml")).unwrap();
    node.wait(|node| ask(node, 32101).is_none());
}
