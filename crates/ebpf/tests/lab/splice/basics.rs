//! Which connections are spliced, and that their bytes go by queue.

use super::world::{PORT, World, at_port, pair_in};
use std::io::{Read, Write};
use std::net::Shutdown;

#[test]
fn both_ways_go_by_queue_from_the_first_byte() {
    let world = World::new();
    let (mut client, mut server) = world.pair();
    let mut text = [0; 5];
    client.write_all(b"hello").unwrap();
    server.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"hello");
    server.write_all(b"world").unwrap();
    client.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"world");
    let status = world.status();
    println!("{status:?}");
    assert_eq!((status.reason("spliced"), status.connections), (1, 1));
    assert_eq!((status.redirected.messages, status.redirected.bytes), (2, 10));
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut text).unwrap(), 0);
    server.write_all(b"still").unwrap();
    client.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"still");
    drop((client, server));
    assert_eq!(world.status().connections, 0);
}

#[test]
fn another_port_is_left_alone() {
    let world = World::new();
    let (mut client, mut server) = pair_in(&world.lab.node, at_port(PORT + 100));
    client.write_all(b"hello").unwrap();
    server.read_exact(&mut [0; 5]).unwrap();
    let status = world.status();
    assert_eq!((status.reason("spliced"), status.redirected.messages), (0, 0));
}
