//! Ends of connections: bytes written before the end are read before the end.

use super::stream::stream;
use super::world::World;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

#[test]
fn the_end_does_not_overtake_what_is_queued() {
    let world = World::new();
    for length in [1, 1000, 60_000] {
        for is_client in [true, false] {
            let (client, server) = world.spliced();
            let (mut writer, mut reader) = if is_client { (client, server) } else { (server, client) };
            let bytes = stream(length as u64, length);
            bytes.chunks(700).for_each(|piece| writer.write_all(piece).unwrap());
            writer.shutdown();
            assert_eq!(reader.rest(), bytes);
            // The other direction is still open.
            reader.write_all(b"answer").unwrap();
            drop(reader);
            assert_eq!(writer.rest(), b"answer");
        }
    }
    assert_eq!(world.reason("missed"), 0);
}

#[test]
fn nor_does_close_or_a_reset() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    client.write_all(b"last words").unwrap();
    drop(client);
    assert_eq!(server.rest(), b"last words");
    let (mut client, mut server) = world.spliced();
    client.write_all(b"last words").unwrap();
    client.reset_at_close();
    drop(client);
    assert_eq!(server.hear(10), b"last words");
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn after_its_own_shutdown_a_socket_writes_no_more() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    client.write_all(b"all").unwrap();
    client.shutdown();
    assert_eq!(client.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(server.rest(), b"all");
}

/// The peer's kernel answers the first write with a reset; further writes fail.
#[test]
fn who_writes_to_a_closed_peer_is_told_as_ever() {
    let world = World::new();
    for is_client in [true, false] {
        let (client, server) = world.spliced();
        let (mut writer, gone) = if is_client { (client, server) } else { (server, client) };
        drop(gone);
        assert_eq!(writer.write(b"nobody is there").unwrap(), 15);
        let error = writer.write(b"nobody").unwrap_err();
        assert!([ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()), "{error}");
    }
    assert_eq!(world.reason("missed"), 0);
}

#[test]
fn a_reader_that_has_shut_down_is_written_to_without_harm() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    server.0.shutdown(Shutdown::Read).unwrap();
    client.write_all(b"unwanted").unwrap();
    server.write_all(b"wanted").unwrap();
    assert_eq!(client.hear(6), b"wanted");
}
