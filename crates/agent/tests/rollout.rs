//! `sidestep-agent rollout` with an API server that the test plays: it answers each request with the next answer of a list.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::thread::JoinHandle;

/// A request: its first line, and its body.
type Request = (String, String);

struct Server {
    address: String,
    thread: JoinHandle<Vec<Request>>,
}

impl Server {
    /// The last answer is given for ever, until the client has ended.
    fn new(answers: Vec<(u16, Value)>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let thread = std::thread::spawn(move || {
            let mut requests = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let Some(request) = read(&mut BufReader::new(&stream)) else { break };
                let (code, body) = &answers[requests.len().min(answers.len() - 1)];
                requests.push(request);
                let body = body.to_string();
                let head = "Content-Type: application/json\r\nConnection: close";
                write!(stream, "HTTP/1.1 {code} X\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                    .expect("written");
            }
            requests
        });
        Server { address, thread }
    }

    /// All requests. A connection without one ends the server.
    fn requests(self) -> Vec<Request> {
        drop(std::net::TcpStream::connect(&self.address).expect("it listens"));
        self.thread.join().expect("no panic")
    }
}

fn read(stream: &mut impl BufRead) -> Option<Request> {
    let mut lines = stream.by_ref().lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut length = 0;
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        if let Some(number) = line.to_lowercase().strip_prefix("content-length: ") {
            length = number.parse().expect("a number");
        }
    }
    drop(lines);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    Some((first, String::from_utf8(body).expect("text")))
}

fn run(server: &Server, timeout: &str) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, patch) = (directory.path().join("config"), directory.path().join("patch.json"));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", server.address)}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]
    });
    std::fs::write(&config, kubeconfig.to_string()).expect("written");
    std::fs::write(&patch, r#"{"spec":{"template":{"spec":{"$patch":"replace"}}}}"#).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-agent"));
    command.args(["rollout", "--namespace", "net", "--daemonset", "sidestep", "--timeout", timeout]);
    command.arg("--kubeconfig").arg(&config).arg("--patch").arg(&patch).output().expect("it runs")
}

fn daemonset(observed: i64, updated: i32, ready: i32) -> (u16, Value) {
    let status = json!({"observedGeneration": observed, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
                        "numberMisscheduled": 0, "updatedNumberScheduled": updated, "numberReady": ready});
    (
        200,
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "sidestep", "generation": 2},
                 "status": status}),
    )
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
                  "message": format!("daemonsets.apps is {reason}"), "metadata": {}}),
    )
}

#[test]
fn it_ends_when_each_node_runs_the_new_template() {
    // The first status is still that of the old template.
    let server = Server::new(vec![daemonset(1, 3, 3), daemonset(2, 1, 0), daemonset(2, 3, 3)]);
    let done = run(&server, "60");
    assert!(done.status.success(), "{done:?}");
    let requests = server.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    let path = "/apis/apps/v1/namespaces/net/daemonsets/sidestep";
    assert!(requests[0].0.starts_with(&format!("PATCH {path}")), "{requests:?}");
    assert_eq!(requests[0].1, r#"{"spec":{"template":{"spec":{"$patch":"replace"}}}}"#);
    assert!(requests[1..].iter().all(|(line, _)| line.starts_with(&format!("GET {path}"))), "{requests:?}");
}

#[test]
fn a_node_that_does_not_come_is_not_waited_for_for_ever() {
    let server = Server::new(vec![daemonset(2, 3, 2)]);
    let done = run(&server, "2");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("after 2 s 2 of 3 nodes are done"), "{said}");
}

#[test]
fn without_a_daemonset_nothing_is_to_be_done_and_a_refusal_is_told() {
    let server = Server::new(vec![failure(404, "NotFound")]);
    assert!(run(&server, "10").status.success());
    let server = Server::new(vec![failure(403, "Forbidden")]);
    let done = run(&server, "10");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("daemonsets.apps is Forbidden"), "{said}");
}
