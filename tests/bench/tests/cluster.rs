//! Pods and their client, as the lab starts them, on the loopback.

use crate::process::{Running, bench};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

/// Returns when it says that it is ready.
fn start(words: &[&str]) -> Running {
    let mut running = Running(bench(words).stdout(Stdio::piped()).spawn().expect("it starts"));
    running.wait_until_ready();
    running
}

fn says(words: &[&str]) -> Result<String, String> {
    let done = bench(words).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
}

const PODS: &str = "127.0.0.2:7471,127.0.0.3:7471";

#[test]
fn each_pod_answers_and_what_it_took_is_told() {
    let _pods = start(&["pods", "--at", PODS]);
    for time in ["connect", "connection", "request"] {
        let said = says(&["dial", "--to", PODS, "--time", time, "--seconds", "0.05"]).expect("it is served");
        let found: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let times = found["latencies"].as_array().expect("latencies").iter().map(|pair| pair[1].as_u64());
        assert_eq!(
            times.map(|each| each.expect("a number")).sum::<u64>(),
            found["requests"].as_u64().expect("a number")
        );
    }
    assert_eq!(says(&["reach", "--to", PODS, "--pods", "2"]), Ok(String::new()));
    let missed = says(&["reach", "--to", PODS, "--pods", "3"]).expect_err("there is no third one");
    assert!(missed.contains("pod 2 has answered none"), "{missed}");
    let more = says(&["reach", "--to", PODS, "--pods", "1"]).expect_err("there is a second one");
    assert!(more.contains("pod 1 is no endpoint"), "{more}");
}

/// As kube-proxy sees it: a list, a watch, and a change of one slice in it.
#[test]
fn a_slice_that_is_put_comes_by_the_watch() {
    let _api = start(&["services-api", "--count", "3", "--port", "7472", "--node", "10.0.0.1"]);
    let ask = |request: &str| {
        let mut stream = TcpStream::connect("127.0.0.1:7472").expect("it listens");
        stream.write_all(request.as_bytes()).expect("it is taken");
        stream
    };
    let slices = "/apis/discovery.k8s.io/v1/endpointslices";
    let mut watch = BufReader::new(ask(&format!("GET {slices}?watch=true&resourceVersion=1 HTTP/1.1\r\n\r\n")));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        watch.read_line(&mut head).expect("a line");
    }
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let slice = says(&["services", "--count", "3", "--as", "slice", "--change", "there"]).expect("a slice");
    let length = slice.len();
    let mut put = ask(&format!("PUT /slice HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{slice}"));
    put.read_exact(&mut [0; 15]).expect("an answer");
    let mut event = String::new();
    watch.read_line(&mut event).expect("its length");
    event.clear();
    watch.read_line(&mut event).expect("an event");
    assert!(event.starts_with(r#"{"object":"#) && event.contains("10.78.0.13"), "{event}");
    assert!(event.contains(r#""type":"MODIFIED""#), "{event}");
}
