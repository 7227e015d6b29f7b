//! Connections that talk until somebody says that it is enough.

use crate::process::{Running, bench};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

/// For so long nothing must come.
const MOMENT: Duration = Duration::from_millis(300);
/// Limit for what must come; reached only if a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

fn echo_one(stream: &mut TcpStream) {
    let mut message = [0; 64];
    stream.read_exact(&mut message).expect("a message");
    stream.write_all(&message).expect("a client that reads");
}

#[test]
fn the_client_goes_on_until_it_is_told_and_ends_with_its_standard_input() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let words = ["idle", "--role", "client", "--port", &port, "--conns", "1", "--rounds", "1", "--every", "0.05"];
    let mut command = bench(&words);
    let mut client = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"));
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // Its round, and some more.
    (0..5).for_each(|_| echo_one(&mut stream));
    let mut told = client.0.stdin.take().expect("a pipe");
    told.write_all(b"\n").expect("it reads");
    // One more message may be on its way.
    let mut from = stream.try_clone().expect("a copy");
    let echoing = std::thread::spawn(move || std::io::copy(&mut from, &mut stream));
    client.wait_until_ready();
    drop(told);
    assert!(client.0.wait().expect("it ends").success());
    echoing.join().expect("no panic").expect("a client that closes its connection");
}

#[test]
fn connections_begin_one_group_after_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let words = ["idle", "--role", "client", "--port", &port, "--conns", "2", "--rounds", "2", "--begin", "0.1"];
    let mut command = bench(&words);
    let mut client = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut streams = [(); 2].map(|()| listener.accept().expect("a connection").0);
    streams[1].set_read_timeout(Some(MOMENT)).expect("a timeout");
    let early = streams[1].peek(&mut [0]).expect_err("the first one has not begun");
    assert_eq!(early.kind(), ErrorKind::WouldBlock);
    for stream in &mut streams {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        (0..2).for_each(|_| echo_one(stream));
    }
    client.wait_until_ready();
    drop(client.0.stdin.take());
    assert!(client.0.wait().expect("it ends").success());
}
