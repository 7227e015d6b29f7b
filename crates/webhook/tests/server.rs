//! The program: TLS with a certificate of its own authority, its answers and its limits.

mod support;

use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use support::{Authority, PATIENCE, Webhook, body_of, post, status_of};

fn review() -> String {
    let pod =
        json!({"metadata": {"labels": {"sidestep.dev/rings": "enabled"}}, "spec": {"containers": [{"name": "app"}]}});
    let request = json!({"uid": "u1", "operation": "CREATE", "object": pod});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

#[test]
fn pods_are_reviewed_over_tls() {
    let authority = Authority::new();
    let webhook = Webhook::start(&authority);
    let answer = webhook.ask(&authority, &post("/pod?timeout=3s", &review())).expect("an answer");
    assert_eq!(status_of(&answer), "200");
    let answer: serde_json::Value = serde_json::from_str(body_of(&answer)).expect("JSON");
    assert_eq!(answer["response"]["uid"], "u1");
    assert_eq!(answer["response"]["patchType"], "JSONPatch");

    let metrics = webhook.metrics("/metrics");
    let injected = r#"sidestep_webhook_containers_total{outcome="injected",reason=""} 1"#;
    assert!(metrics.contains(injected), "{metrics}");
    assert_eq!(status_of(&webhook.metrics("/readyz")), "200");
}

#[test]
fn who_knows_another_authority_does_not_believe_it() {
    let webhook = Webhook::start(&Authority::new());
    let error = webhook.ask(&Authority::new(), &post("/pod", &review())).expect_err("no certificate of this authority");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[test]
fn nothing_is_answered_without_tls() {
    let webhook = Webhook::start(&Authority::new());
    let mut stream = TcpStream::connect(webhook.address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(post("/pod", &review()).as_bytes()).expect("sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.windows(4).any(|part| part == b"HTTP" || part == b"uid\""), "{answer:?}");
}

#[test]
fn other_requests_are_refused() {
    let authority = Authority::new();
    let webhook = Webhook::start(&authority);
    let large = "POST /pod HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\nxxxx";
    for (request, expected) in [
        (post("/", &review()), "404"),
        (post("/restricted", &review()), "404"),
        ("GET /pod HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "405"),
        (post("/pod", "no JSON"), "400"),
        (post("/pod", "{}"), "400"),
        (large.to_owned(), "413"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
    ] {
        let answer = webhook.ask(&authority, &request).expect("an answer");
        assert_eq!(status_of(&answer), expected, "{}", &request[..60.min(request.len())]);
    }
    let answer = webhook.ask(&authority, &post("/pod", &review())).expect("an answer");
    assert_eq!(status_of(&answer), "200", "it goes on");
}

/// The kernel's queue takes more connections than are open at a time; those that say nothing give way.
#[test]
fn who_says_nothing_holds_up_nobody() {
    let authority = Authority::new();
    let webhook = Webhook::start(&authority);
    let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(webhook.address).expect("connected")).collect();
    let answer = webhook.ask(&authority, &post("/pod", &review())).expect("an answer");
    assert_eq!(status_of(&answer), "200");
    drop(silent);
}

#[test]
fn a_new_certificate_counts_from_the_next_connection_on() {
    let (old, new) = (Authority::new(), Authority::new());
    let webhook = Webhook::start(&old);
    webhook.replace_certificate("nonsense", "nonsense");
    assert!(webhook.ask(&old, &post("/pod", &review())).is_ok(), "what was there before counts");
    let (certificate, key) = new.issue();
    webhook.replace_certificate(&certificate, &key);
    assert!(webhook.ask(&new, &post("/pod", &review())).is_ok());
    assert!(webhook.ask(&old, &post("/pod", &review())).is_err());
}
