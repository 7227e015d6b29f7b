//! The plugin as a process, and a runtime that calls it.

use crate::support::{Node, PATIENCE, code, request};
use prost::Message as _;
use serde_json::Value;
use sidestep_nri::api::{
    ConfigureRequest, ConfigureResponse, ContainerRequest, PLUGIN_SERVICE, PodSandbox, START_CONTAINER,
    StateChangeEvent, SynchronizeRequest, SynchronizeResponse,
};
use sidestep_nri::ttrpc::{Response, Status, UNIMPLEMENTED};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The bits of CreateContainer and StartContainer, as in NRI's api.proto: 1 << (event - 1).
const EVENTS: i32 = 1 << 3 | 1 << 5;

#[test]
fn it_registers_and_subscribes() {
    let node = Node::new(&[]);
    let mut runtime = node.accept();
    let registration = runtime.registration();
    runtime.respond(&registration, &Response::default());
    let configured =
        runtime.call("Configure", &ConfigureRequest { runtime_name: "containerd".into(), ..Default::default() });
    assert_eq!(ConfigureResponse::decode(&configured.payload[..]).expect("an answer").events, EVENTS);
    assert!(node.line("configured")["message"].as_str().expect("a text").contains("containerd"));
}

/// The runtime names what it has in two messages, and containers before their pods.
#[test]
fn containers_that_were_there_before_are_told() {
    let node = Node::new(&[]);
    let mut runtime = node.ready();
    let part = |name: &str, label, env: &[&str]| {
        let ContainerRequest { pod, container } = request(label, env);
        let mut container = container.expect("a container");
        container.pod_sandbox_id = name.into();
        (PodSandbox { id: name.into(), name: name.into(), ..pod.expect("a pod") }, container)
    };
    let preload = format!("LD_PRELOAD={}/libsidestep.so", node.path("lib/0.0.0-000000000000").display());
    let parts =
        [part("injected", Some("enabled"), &[&preload]), part("other", None, &[]), part("late", Some("enabled"), &[])];
    let (pods, containers) = parts.into_iter().unzip();
    for request in [
        SynchronizeRequest { pods: Vec::new(), containers, more: true },
        SynchronizeRequest { pods, containers: Vec::new(), more: false },
    ] {
        let answer = runtime.call("Synchronize", &request);
        assert_eq!(SynchronizeResponse::decode(&answer.payload[..]).expect("an answer").more, request.more);
    }
    node.line("left-out");
    let events = std::fs::read_to_string(node.path("events")).expect("the file of events");
    assert_eq!(events.lines().count(), 1, "{events}");
    let event: Value = serde_json::from_str(&events).expect("JSON");
    assert_eq!((&event["pod"], &event["reason"]), (&"late".into(), &"created-before".into()));
}

#[test]
fn a_runtime_may_call_before_it_answers_the_registration() {
    let node = Node::new(&[]);
    let mut runtime = node.accept();
    let registration = runtime.registration();
    assert_eq!(code(&runtime.call("Configure", &ConfigureRequest::default())), 0);
    runtime.respond(&registration, &Response::default());
    assert!(runtime.create(&request(Some("enabled"), &[])).is_some());
}

#[test]
fn enrolled_containers_are_adjusted_and_no_others() {
    let node = Node::new(&["--namespaces", "web"]);
    let mut runtime = node.ready();
    let adjusted = runtime.create(&request(Some("enabled"), &["PATH=/bin", "LD_PRELOAD=/a.so"])).expect("adjusted");
    let env: Vec<_> = adjusted.env.iter().map(|variable| (variable.key.as_str(), variable.value.as_str())).collect();
    let version = sidestep_nri::store::current(&node.path("lib")).expect("a version").display().to_string();
    assert_eq!(
        env,
        [
            ("-LD_PRELOAD", ""),
            ("LD_PRELOAD", &format!("/a.so:{version}/libsidestep.so")),
            ("SIDESTEP_BROKER", &node.path("member/broker").display().to_string()),
        ]
    );
    assert_eq!(adjusted.mounts.len(), 2);
    assert_eq!(node.line("injected")["pod"], "web-0");

    assert_eq!(runtime.create(&request(None, &[])), None, "neither label nor namespace");
    let mut listed = request(None, &[]);
    listed.pod.as_mut().expect("a pod").namespace = "web".into();
    assert!(runtime.create(&listed).is_some(), "its namespace is listed");
}

#[test]
fn who_is_left_out_is_told_with_the_reason() {
    let node = Node::new(&["--metrics", "127.0.0.1:0"]);
    let line = node.line("metrics")["message"].as_str().expect("a text").to_owned();
    let mut runtime = node.ready();
    let mut opted_out = request(Some("enabled"), &[]);
    let annotation = ("sidestep.dev/rings.app".to_owned(), "disabled".to_owned());
    opted_out.pod.as_mut().expect("a pod").annotations.extend([annotation]);
    assert_eq!(runtime.create(&opted_out), None);
    std::fs::remove_dir(node.path("member")).expect("removed");
    assert_eq!(runtime.create(&request(Some("enabled"), &[])), None);

    // A line of the log follows that of the file.
    (0..2).for_each(|_| _ = node.line("left-out"));
    let events = std::fs::read_to_string(node.path("events")).expect("the file of events");
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told: Vec<_> = events.iter().map(|event| (event["event"].clone(), event["reason"].clone())).collect();
    assert_eq!(told, [("left-out".into(), "opted-out".into()), ("left-out".into(), "no-broker".into())]);
    for (field, expected) in [("namespace", "shop"), ("pod", "web-0"), ("pod_uid", "1f0b8a52"), ("container", "app")] {
        assert_eq!(events[0][field], expected);
    }

    let address = line.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/metrics")).expect("an address");
    let metrics = get(address, "/metrics");
    for expected in [
        r#"sidestep_nri_containers_total{outcome="left-out",reason="opted-out"} 1"#,
        r#"sidestep_nri_containers_total{outcome="left-out",reason="no-broker"} 1"#,
        "sidestep_nri_connected 1",
        "sidestep_nri_request_seconds_count 3",
        "sidestep_nri_build_info{version=",
    ] {
        assert!(metrics.contains(expected), "{expected} is not in {metrics}");
    }
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200"));
    drop(runtime);
    node.line("disconnected");
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 503"));
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// This test's process stands for a container's: its root is the machine's.
#[test]
fn entrypoints_are_looked_at_when_containers_start() {
    let node = Node::new(&[]);
    let mut runtime = node.ready();
    let mut elf = vec![0; 64];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    elf[18] = 62;
    std::fs::write(node.path("static"), elf).expect("a program");
    let own = std::fs::read_link("/proc/self/exe").expect("this program");

    // By a call of its own, and as runtimes with an older NRI say it.
    let mut is_state_change = false;
    let mut start = |program: &std::path::Path, env: &[&str]| {
        let mut request = request(Some("enabled"), env);
        let container = request.container.as_mut().expect("a container");
        container.args = vec![program.display().to_string()];
        container.pid = std::process::id();
        let ContainerRequest { pod, container } = request.clone();
        let response = match is_state_change {
            true => runtime.call("StateChange", &StateChangeEvent { event: START_CONTAINER, pod, container }),
            false => runtime.call("StartContainer", &request),
        };
        assert_eq!((code(&response), response.payload.len()), (0, 0));
        is_state_change = !is_state_change;
    };
    let preload = format!("LD_PRELOAD={}/libsidestep.so", node.path("lib/0.0.0-000000000000").display());
    start(&own, &[&preload]);
    start(&node.path("static"), &["PATH=/bin"]);
    start(&node.path("missing"), &[&preload]);
    start(&node.path("static"), &[&preload]);
    start(&node.path("static"), &[&preload]);
    // One thread looks at one after the other: there is nothing about the first, which is fine, and the second, which was not
    // injected.
    let unknown = node.line("unknown");
    assert_eq!(unknown["reason"], "unknown-program");
    (0..2).for_each(|_| assert_eq!(node.line("no-effect")["reason"], "static"));
}

/// An error would keep a container from being started.
#[test]
fn no_state_change_fails() {
    let node = Node::new(&[]);
    let mut runtime = node.ready();
    let changes = (0..20).map(|event| StateChangeEvent { event, ..Default::default() }.encode_to_vec());
    for payload in changes.chain([vec![0xff; 100]]) {
        assert_eq!(code(&runtime.call_with(PLUGIN_SERVICE, "StateChange", payload)), 0);
    }
}

/// As after a reboot: the agent writes the file once it has asked the API server.
#[test]
fn containers_that_came_before_the_names_of_namespaces_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let names = directory.path().join("namespaces");
    let node = Node::new(&["--namespaces-file", names.to_str().expect("text")]);
    let mut runtime = node.ready();
    let ContainerRequest { pod, container } = request(None, &[]);
    let (mut pod, mut container) = (pod.expect("a pod"), container.expect("a container"));
    (pod.id, container.pod_sandbox_id) = ("a".into(), "a".into());
    let created = ContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
    assert_eq!(runtime.create(&created), None);
    std::fs::write(&names, format!("{}\n", pod.namespace)).expect("written");
    runtime.closed();
    let mut runtime = node.ready();
    runtime.call("Synchronize", &SynchronizeRequest { pods: vec![pod], containers: vec![container], more: false });
    assert_eq!(node.line("left-out")["reason"], "created-before");
    assert!(runtime.create(&created).is_some());
}

#[test]
fn it_comes_back_to_a_runtime_that_was_restarted() {
    let mut node = Node::new(&[]);
    for _ in 0..3 {
        let mut runtime = node.ready();
        assert!(runtime.create(&request(Some("enabled"), &[])).is_some());
        drop(runtime);
        node.restart();
    }
    let mut runtime = node.accept();
    let registration = runtime.registration();
    let status = Status { code: 3, message: "a plugin of that name is there".into() };
    runtime.respond(&registration, &Response { status: Some(status), payload: Vec::new() });
    runtime.closed();
    assert!(node.ready().create(&request(Some("enabled"), &[])).is_some(), "it tries again");
}

#[test]
fn what_cannot_be_decoded_changes_no_container() {
    let node = Node::new(&[]);
    let mut runtime = node.ready();
    for payload in [vec![0xff; 100], vec![0x0a, 0x7f], Vec::new()] {
        let response = runtime.call_with(PLUGIN_SERVICE, "CreateContainer", payload);
        assert_eq!((code(&response), response.payload.len()), (0, 0), "no error, and no adjustment");
        assert_eq!(node.line("left-out")["reason"], "undecodable");
    }
    let half = ContainerRequest { pod: None, ..request(Some("enabled"), &[]) };
    assert_eq!(runtime.create(&half), None);
    for (service, method) in [(PLUGIN_SERVICE, "RunPodSandbox"), (PLUGIN_SERVICE, ""), ("other", "CreateContainer")] {
        assert_eq!(code(&runtime.call_with(service, method, Vec::new())), UNIMPLEMENTED, "{service}/{method}");
    }
    assert!(runtime.create(&request(Some("enabled"), &[])).is_some(), "and it goes on");
}

/// Bytes after which a connection cannot be used any more.
#[test]
fn after_wrong_frames_it_connects_again() {
    let mut node = Node::new(&[]);
    let wrong: [(&str, Vec<u8>); 5] = [
        ("a frame of 4 GiB", [1u32, u32::MAX].iter().flat_map(|word| word.to_be_bytes()).collect()),
        ("a frame that does not end", vec![0, 0, 0, 1, 0, 0, 1, 0, 1, 2, 3]),
        ("a message of 4 GiB", [&[0, 0, 0, 1, 0, 0, 0, 10, 0xff, 0xff, 0xff, 0xff][..], &[0; 6]].concat()),
        ("a message of no type", [&[0, 0, 0, 1, 0, 0, 0, 10][..], &[0; 10]].concat()),
        ("a request that is none", vec![0, 0, 0, 1, 0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0, 1, 1, 0, 0xff, 0xff]),
    ];
    for (what, bytes) in wrong {
        let mut runtime = node.ready();
        runtime.send_raw(&bytes);
        let begun = Instant::now();
        runtime.closed();
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}: it waits {:?}", begun.elapsed());
    }
    assert!(node.ready().create(&request(Some("enabled"), &[])).is_some());
    assert!(node.is_alive());
}

#[test]
fn random_bytes_are_survived() {
    let mut node = Node::new(&[]);
    // xorshift64, from a fixed seed.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..30 {
        let mut runtime = node.ready();
        let bytes: Vec<u8> = (0..random() % 3000).map(|_| random() as u8).collect();
        // In frames of the right form, or without.
        if random() % 2 == 0 {
            let header = [1u32, bytes.len() as u32];
            runtime.send_raw(&header.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>());
        }
        runtime.send_raw(&bytes);
    }
    assert!(node.is_alive());
    assert!(node.ready().create(&request(Some("enabled"), &[])).is_some());
}

/// The runtime gives a plugin 2 s, after which it does without it.
#[test]
fn answers_are_quick() {
    let node = Node::new(&[]);
    let mut runtime = node.ready();
    let long = format!("A={}", "x".repeat(100_000));
    let mut slowest = Duration::ZERO;
    for _ in 0..300 {
        let begun = Instant::now();
        assert!(runtime.create(&request(Some("enabled"), &[&long])).is_some());
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}
