//! Thousands of documents, most of which name namespaces that do not exist.

use crate::agent::{Node, VIP, median};
use crate::yaml;
use sidestep_testkit::Namespace;
use std::fs;
use std::time::{Duration, Instant};

/// Numbers of documents and of namespaces. `SIDESTEP_CAPTURES=10000,300` sets others: namespaces take long to create.
const USUAL: (usize, usize) = (2000, 25);
/// Number of different sets of rules.
const RULES: usize = 10;

fn sizes() -> (usize, usize) {
    let wanted = std::env::var("SIDESTEP_CAPTURES").ok();
    let parsed = wanted.as_deref().and_then(|text| text.split_once(','));
    parsed.map_or(USUAL, |(files, namespaces)| (files.parse().unwrap(), namespaces.parse().unwrap()))
}

fn file(n: usize, netns: &str) -> String {
    yaml::annotated(&format!("c{n}"), netns, "excludeOutboundPorts", &format!("22,{}", 5000 + n % RULES))
}

/// Resident memory of the agent in MiB.
fn memory(node: &Node) -> usize {
    let pid = node.status().unwrap().pid;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() / 1024
}

/// A cheap query, since it runs on the same processors as the measured work.
fn used(node: &Node, table: &str) -> usize {
    let tables = node.status().unwrap().tables;
    tables.iter().find(|fill| fill.table == table).map_or(0, |fill| fill.used as usize)
}

fn wait(node: &Node, pods: usize) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while used(node, "pods") != pods {
        assert!(Instant::now() < deadline, "{} of {pods}", used(node, "pods"));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn thousands_of_files_are_loaded_taken_over_and_changed() {
    let (files, there) = sizes();
    let mut node = Node::new();
    for n in 0..files {
        fs::write(node.services().join(format!("c{n}.yaml")), file(n, &format!("nowhere-{n}"))).unwrap();
    }
    let begun = Instant::now();
    node.start();
    let loaded = begun.elapsed();
    let small = memory(&node);
    assert_eq!(node.check().problems.len(), files);

    let namespaces: Vec<Namespace> =
        (0..there).map(|n| Namespace::new(&format!("{}-{n}", node.testbed.node.name()))).collect();
    for (n, namespace) in namespaces.iter().enumerate() {
        namespace.ip(&format!("addr add 10.100.{}.{}/32 dev lo", n / 250, n % 250));
    }
    let all: String = namespaces.iter().enumerate().map(|(n, namespace)| file(files + n, namespace.name())).collect();
    let begun = Instant::now();
    node.file("all.yaml", &all);
    // Services need not wait for namespaces.
    let changed = Instant::now();
    node.file("web.yaml", &yaml::service("web", VIP, 80, ""));
    node.wait(|node| node.show("web").is_ok_and(|web| web.ports.len() == 1));
    let (beside, left) = (changed.elapsed(), there - used(&node, "pods"));
    wait(&node, there);
    let put = begun.elapsed();
    // Pods with equal rules share the entries.
    assert_eq!(used(&node, "sets"), RULES.min(there) * 7);

    let more = Namespace::new(&format!("{}-more", node.testbed.node.name()));
    let times: Vec<Duration> = (0..18)
        .map(|round| {
            let begun = Instant::now();
            match round % 2 {
                0 => node.file("one.yaml", &file(files + there, more.name())),
                _ => fs::remove_file(node.services().join("one.yaml")).unwrap(),
            }
            wait(&node, there + 1 - round % 2);
            begun.elapsed()
        })
        .collect();
    let middle = median(&times);
    let begun = Instant::now();
    let check = node.check();
    let checked = begun.elapsed();
    assert_eq!((check.captures, check.differences), (there, vec![]));
    node.kill();
    let begun = Instant::now();
    node.start();
    wait(&node, there);
    let taken_over = begun.elapsed();
    println!(
        "{files} files: loaded in {loaded:.1?}, {small} MiB; {there} namespaces captured in {put:.1?}, {:.1?} each, a Service \
         beside {left} of them in {beside:.1?}; one file changed in {:.1?}, all compared in {checked:.1?}, taken over in {taken_over:.1?}, {} MiB",
        put / there as u32,
        middle,
        memory(&node)
    );
    assert!(middle < Duration::from_millis(100), "{times:?}");
}
