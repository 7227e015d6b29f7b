//! Counters of connections without a proxy.

use super::world::{ONLY_WEB, World, call, is_refused};
use crate::agent::{VIP, at, dial};
use crate::yaml;

/// The value of a metric with all of these labels.
fn value(metrics: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label));
    let mut lines = metrics.lines().filter(is_it);
    let line = lines.next()?;
    assert!(lines.next().is_none(), "{name} {labels:?} is there twice:\n{metrics}");
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn figures_are_right_by_pair_and_by_service() {
    let mut world = World::with(&["--watch"]);
    world.node.web([&world.db]);
    world.policy("db", ONLY_WEB, "db");
    world.node.wait(|node| node.show("web").is_ok_and(|web| web.ports[0].backend_count == 1));
    for _ in 0..5 {
        assert!(call(&world.web, &world.db).is_ok());
    }
    for _ in 0..3 {
        assert!(world.web.namespace.run(|| dial(at(VIP, 80))).is_ok());
    }
    assert!(is_refused(&world.stranger, &world.db));
    let metrics = world.node.metrics();
    let pair = ["client_namespace=\"default\"", "client=\"web\"", "server=\"db\"", "server_namespace=\"default\""];
    let [client, server] = ["side=\"client\"", "side=\"server\""].map(|side| [&pair[..], &[side]].concat());
    let of = |name: &str, labels: &[&str]| value(&metrics, &format!("sidestep_flow_{name}"), labels);
    // Counted at both ends, since both are known pods.
    assert_eq!(of("connections_total", &server), Some(8.0), "{metrics}");
    assert_eq!(of("connections_total", &client), Some(8.0), "{metrics}");
    let said = world.db.v4.to_string().len() as f64;
    // A client that ends by a reset may not have acknowledged the last bytes.
    let received = of("received_bytes_total", &client).unwrap();
    assert!((8.0 * said..8.0 * said + 32.0).contains(&received), "{received} bytes of 8 times {said}");
    assert_eq!(of("connect_seconds_count", &client), Some(8.0));
    let refused = ["client=\"stranger\"", "server=\"db\"", "side=\"client\"", "kind=\"refused\""];
    assert_eq!(of("failures_total", &refused), Some(1.0), "{metrics}");
    assert!(of("rtt_samples_total", &server).unwrap() >= 8.0);
    let service = ["namespace=\"default\"", "service=\"web\"", "side=\"client\""];
    assert_eq!(value(&metrics, "sidestep_service_flow_connections_total", &service), Some(3.0), "{metrics}");
    // Counters keep counting, and do not decrease when the Service is deleted.
    std::fs::remove_file(world.node.services().join("web.yaml")).unwrap();
    world.node.wait(|node| node.show("web").is_err());
    world.node.file("other.yaml", &yaml::service("other", "10.96.0.11", 80, ""));
    world.node.wait(|node| node.show("other").is_ok());
    for _ in 0..2 {
        let metrics = world.node.metrics();
        assert_eq!(value(&metrics, "sidestep_flow_connections_total", &client), Some(8.0), "{metrics}");
        assert_eq!(value(&metrics, "sidestep_service_flow_connections_total", &service), None, "{metrics}");
        let other = ["service=\"other\""];
        assert_eq!(value(&metrics, "sidestep_service_flow_connections_total", &other), None, "{metrics}");
    }
    assert!(metrics.contains("sidestep_enforced_pods 1\n") && metrics.contains("sidestep_policies 1\n"));
}

#[test]
fn without_being_asked_nothing_is_counted() {
    let mut world = World::new();
    world.policy("db", ONLY_WEB, "db");
    assert!(call(&world.web, &world.db).is_ok());
    assert!(!world.node.metrics().contains("sidestep_flow"));
}
