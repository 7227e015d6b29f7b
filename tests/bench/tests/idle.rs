//! Connections that talk until somebody says that it is enough.

use crate::process::{Running, bench};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

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
