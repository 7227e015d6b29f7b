//! Thousands of Services with ten endpoints each.

use crate::agent::Node;
use crate::yaml;
use std::fs;
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

const SERVICES: usize = 30_000;
const ENDPOINTS: usize = 10;
/// Number of Services in each file.
const IN_A_FILE: usize = 100;
/// One Kubernetes namespace may have at most half of a table.
const NAMESPACES: usize = 4;

fn one(n: usize, first: usize) -> String {
    let endpoint = |e: usize| {
        let i = n * ENDPOINTS + first + e;
        format!("10.{}.{}.{}", 1 + i / 65536, i / 256 % 256, i % 256).parse().unwrap()
    };
    let endpoints: Vec<IpAddr> = (0..ENDPOINTS).map(endpoint).collect();
    let name = format!("s{n}");
    yaml::service(&name, &address(n), 80, "") + &yaml::slice(&name, &endpoints, 8080)
}

fn address(n: usize) -> String {
    format!("10.96.{}.{}", n / 250, 1 + n % 250)
}

fn some(file: usize, first: usize) -> String {
    (0..IN_A_FILE).map(|n| one(file * IN_A_FILE + n, first)).collect()
}

/// As many Services as a large cluster has, all of them used. For the figure of a release build:
/// `cargo test --release -p sidestep-agent --test testbed -- --nocapture metrics_of`
#[test]
fn metrics_of_many_services_come_soon() {
    const MANY: usize = 8_100;
    /// A debug build formats text slowly.
    const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 800 } else { 200 });
    let mut node = Node::new();
    for file in 0..MANY / IN_A_FILE {
        fs::write(node.services().join(format!("{file}.yaml")), some(file, 0)).unwrap();
    }
    node.start();
    let client = node.testbed.pod();
    // The endpoints do not exist: being picked is enough.
    client.namespace.run(|| {
        for n in (0..MANY).flat_map(|n| std::iter::repeat_n(n, 20)) {
            let _ = TcpStream::connect((address(n), 80));
        }
    });
    let scrape = || {
        let begun = Instant::now();
        let text = node.metrics();
        (begun.elapsed(), text)
    };
    // Other load may disturb, so the best of several counts.
    let (took, text) = (0..8).map(|_| scrape()).min_by_key(|(took, _)| *took).unwrap();
    let lines = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(lines("sidestep_service_picks_total{"), MANY);
    let used = lines("sidestep_backend_picks_total{");
    // With ten endpoints, twenty picks leave a given one out with a probability of one eighth.
    assert!(used > MANY * ENDPOINTS * 8 / 10, "{used}");
    println!("{MANY} Services, {used} used backends: {} MB of metrics in {took:.1?}", text.len() / 1_000_000);
    assert!(took < LIMIT, "{took:?}");
}

#[test]
fn thirty_thousand_services_are_loaded_taken_over_and_changed() {
    let mut node = Node::new();
    for file in 0..SERVICES / IN_A_FILE {
        let namespace = format!("metadata: {{namespace: team-{}, ", file % NAMESPACES);
        let text = some(file, 0).replace("metadata: {", &namespace);
        fs::write(node.services().join(format!("{file}.yaml")), text).unwrap();
    }
    let begun = Instant::now();
    node.start();
    let loaded = begun.elapsed();
    let status = node.status().unwrap();
    let used = |table: &str| status.tables.iter().find(|fill| fill.table == table).unwrap().used as usize;
    assert_eq!((used("frontends"), used("slots")), (SERVICES, SERVICES * ENDPOINTS));
    let first_write = Duration::from_micros(status.reconcile.longest_us);
    let check = node.check();
    assert!(check.is_well() && check.frontends == SERVICES, "{:?}", check.differences.first());
    // One endpoint each of some more Services: changing the same one again would wait for readers of its entry.
    let more = SERVICES..SERVICES + 9;
    for service in more.clone() {
        node.file(&format!("{service}.yaml"), &one(service, 0));
        node.wait(|node| node.show(&format!("s{service}")).is_ok());
    }
    let mut writes: Vec<u64> = more
        .map(|service| {
            let before = node.status().unwrap().reconcile.runs;
            node.file(&format!("{service}.yaml"), &one(service, 1));
            node.wait(|node| node.status().unwrap().reconcile.runs > before);
            node.status().unwrap().reconcile.last_us
        })
        .collect();
    writes.sort();
    let begun = Instant::now();
    node.kill();
    node.start();
    let taken_over = begun.elapsed();
    assert!(node.check().is_well());
    println!(
        "{SERVICES} Services: loaded in {loaded:.1?}, of which writing {first_write:.1?}; one endpoint changed in {} us; \
         taken over in {taken_over:.1?}",
        writes[4]
    );
    assert!(writes[4] < 10_000, "microseconds: {writes:?}");
}
