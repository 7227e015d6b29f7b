//! A server that anybody can reach: its answers and its limits.

use sidestep_http::{Answer, Limits, Page, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const WHOLE: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
const PATIENCE: Duration = Duration::from_secs(20);
/// Answers with metrics in memory at a time.
const ANSWERS: usize = 4;

/// The address of a server whose metrics are an error of so many bytes. It is alive, and not ready.
fn server(limits: Limits, bytes: usize) -> SocketAddr {
    let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap().limited(limits);
    let address = server.address().unwrap();
    std::thread::spawn(move || {
        server.run(async move |page| match page {
            Page::Metrics => sidestep_http::apart(move || Answer::unavailable("x".repeat(bytes))).await,
            Page::Alive => Answer::well("ok\n"),
            Page::Ready => Answer::unavailable("not yet\n"),
        })
    });
    address
}

fn send(to: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Everything received until the end of the connection or its reset.
fn read(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is not closed"),
    }
    String::from_utf8(text).unwrap()
}

fn status(text: &str) -> &str {
    text.split(' ').nth(1).unwrap_or("closed")
}

#[test]
fn each_request_has_its_answer() {
    let at = server(Limits::default(), 5);
    for (request, expected) in [
        (WHOLE, "503"),
        ("GET /metrics HTTP/1.0\r\n\r\n", "503"),
        ("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "503"),
        ("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", "503"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        assert_eq!(status(&read(send(at, request))), expected, "{request}");
    }
    assert!(read(send(at, WHOLE)).ends_with("xxxxx"));
}

#[test]
fn a_call_that_panics_is_an_error_of_the_server() {
    let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let at = server.address().unwrap();
    std::thread::spawn(move || server.run(async |_| sidestep_http::apart(|| panic!("on purpose")).await));
    assert_eq!(status(&read(send(at, WHOLE))), "500");
}

#[test]
fn slow_readers_of_metrics_do_not_keep_probes_waiting() {
    // Of each server: more connections than may want metrics, and fewer, which a new one has to replace.
    for open in [Limits::default().open, 8] {
        let at = server(Limits { open, ..Limits::default() }, 64 << 20);
        // More bytes than sockets buffer, which nobody reads: they hold all permits.
        let mut slow: Vec<_> = (0..open).map(|_| send(at, WHOLE)).collect();
        let begun = Instant::now();
        // Several times: the first probe might come before the server has read all these requests.
        for _ in 0..20 {
            assert_eq!(status(&read(send(at, "GET /healthz HTTP/1.0\r\n\r\n"))), "200", "{open}");
            slow.push(send(at, WHOLE));
        }
        assert!(begun.elapsed() < Limits::default().until_answered / 2);
    }
}

#[test]
fn more_than_a_dozen_get_no_metrics_and_are_told_so_at_once() {
    let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let at = server.address().unwrap();
    std::thread::spawn(move || server.run(async |_| std::future::pending().await));
    let (told, texts) = std::sync::mpsc::channel();
    for _ in 0..20 {
        let (told, stream) = (told.clone(), send(at, WHOLE));
        std::thread::spawn(move || told.send(read(stream)));
    }
    for _ in 12..20 {
        let text = texts.recv_timeout(Limits::default().until_answered / 2).expect("an answer");
        assert!(text.ends_with("too many ask for metrics at a time\n"), "{text}");
    }
}

#[test]
fn half_sent_requests_make_room_for_whole_ones() {
    let at = server(Limits { open: 8, ..Limits::default() }, 5);
    let half: Vec<_> = (0..200).map(|_| send(at, "GET /metrics HTTP/1.1\r\nHost: a\r\nX-")).collect();
    assert_eq!(status(&read(send(at, WHOLE))), "503");
    let begun = Instant::now();
    let closed = half.into_iter().take(192).map(read).filter(String::is_empty).count();
    assert_eq!(closed, 192);
    assert!(begun.elapsed() < Limits::default().until_asked, "they are closed at once, not after their time");
}

#[test]
fn a_request_has_to_come_soon_and_its_answer_has_to_be_read_soon() {
    let soon = Limits {
        until_asked: Duration::from_millis(200),
        until_answered: Duration::from_millis(900),
        ..Limits::default()
    };
    let at = server(soon, 64 << 20);
    assert_eq!(status(&read(send(at, "GET /metrics HTT"))), "closed");
    // More bytes than sockets buffer, which nobody reads, and more connections than answers at a time.
    let slow: Vec<_> = (0..2 * ANSWERS).map(|_| send(at, WHOLE)).collect();
    std::thread::sleep(soon.until_answered);
    // Their permits are free again.
    let deadline = Instant::now() + PATIENCE;
    while status(&read(send(at, WHOLE))) != "503" {
        assert!(Instant::now() < deadline, "nobody is answered any more");
    }
    for stream in slow {
        assert!(read(stream).len() < 64 << 20);
    }
}

#[test]
fn a_long_head_is_refused() {
    let at = server(Limits::default(), 5);
    let head = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(2 * Limits::default().head));
    assert_eq!(status(&read(send(at, &head))), "431");
}
