//! Thousands of files, most of which name namespaces that are not there.

use crate::agent::Node;
use crate::yaml;
use sidestep_testkit::Namespace;
use std::fs;
use std::time::{Duration, Instant};

/// Files, and namespaces. More by `SIDESTEP_CAPTURES=10000,300`: namespaces take long to make.
const USUAL: (usize, usize) = (3000, 40);
/// Different rules.
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

fn captured(node: &Node) -> usize {
    node.captures().captures.iter().filter(|capture| capture.captured).count()
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
        (0..there).map(|n| Namespace::new(&format!("{}-{n}", node.lab.node.name()))).collect();
    for (n, namespace) in namespaces.iter().enumerate() {
        namespace.ip(&format!("addr add 10.100.{}.{}/32 dev lo", n / 250, n % 250));
    }
    let all = |extra: &str| -> String {
        let each = namespaces.iter().enumerate();
        each.map(|(n, namespace)| file(n, namespace.name()).replace("name: c", &format!("name: d{extra}"))).collect()
    };
    let begun = Instant::now();
    node.file("all.yaml", &all(""));
    node.wait(|node| captured(node) == there);
    let put = begun.elapsed();
    let figures = node.captures();
    let used = |table: &str| figures.tables.iter().find(|fill| fill.table == table).unwrap().used;
    // Those that share their rules share the entries.
    assert_eq!((used("pods") as usize, used("sets")), (there, (RULES.min(there) * 7) as u32));

    let mut times: Vec<Duration> = (0..9)
        .map(|round| {
            let begun = Instant::now();
            node.file("one.yaml", &file(files, &format!("nowhere-{round}")));
            let wanted = format!("nowhere-{round}");
            node.wait(|node| {
                node.capture(&format!("c{files}")).is_some_and(|one| one.netns == wanted && !one.troubles.is_empty())
            });
            begun.elapsed()
        })
        .collect();
    times.sort();
    let begun = Instant::now();
    let check = node.check();
    let checked = begun.elapsed();
    assert_eq!((check.captures, check.differences), (there, vec![]));
    node.kill();
    let begun = Instant::now();
    node.start();
    node.wait(|node| captured(node) == there);
    let taken_over = begun.elapsed();
    println!(
        "{files} files: loaded in {loaded:.1?}, {small} MiB; {there} namespaces captured in {put:.1?}, {:.1?} each; one file \
         changed in {:.1?}, all compared in {checked:.1?}, taken over in {taken_over:.1?}, {} MiB",
        put / there as u32,
        times[4],
        memory(&node)
    );
    assert!(times[4] < Duration::from_millis(100), "{times:?}");
}
