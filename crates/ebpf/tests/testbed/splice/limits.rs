//! Memory is bounded.

use super::options::{memory, queued, set};
use super::stream::{exchange, expect, send, stream};
use super::world::{End, PORT, World, at_port, listen};
use crate::sockets::until;
use sidestep_ebpf::splice::Status;
use std::io::{ErrorKind, Read, Write};

/// The largest single message, which is redirected whatever its size: sixteen pieces of 32 KiB.
const LARGEST_MESSAGE: usize = 512 << 10;

/// Writes until the call would block.
fn fill(writer: &End, bytes: &[u8], piece: usize) -> usize {
    let mut place = 0;
    loop {
        match (&writer.0).write(&bytes[place..place + piece]) {
            Ok(written) => place += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return place,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The queue holds at most the reader's receive buffer. Then TCP carries the rest, and the writer blocks.
#[test]
fn a_reader_that_stalls_stops_its_writer() {
    let world = World::new();
    let bytes = stream(5, 64 << 20);
    for piece in [1, 100, 4096, 65_536] {
        let before = world.status();
        let (writer, reader) = world.spliced();
        let (_, room) = memory(&reader);
        let written = fill(&writer, &bytes[..if piece == 1 { 4 << 20 } else { 64 << 20 }], piece);
        let (held, _) = memory(&reader);
        println!("pieces of {piece}: {written} written, {held} held, room for {room}");
        assert!(queued(&reader).0 as usize <= written);
        // The limit of TCP alone: twice the reader's buffer (including overhead), and the writer's own.
        assert!(held as usize <= 2 * room as usize + LARGEST_MESSAGE, "{held} held of {room}");
        assert!(written < 8 << 20, "{written} written");
        let after = world.status();
        let stopped = |status: &Status| status.reason("stalled") + status.reason("streams");
        assert_eq!(stopped(&after), stopped(&before) + 1);
        // The number of messages is limited, too, since each needs memory besides its bytes.
        let messages = after.redirected.messages - before.redirected.messages;
        assert!(messages <= 4 * u64::from(room) / 1024 + 1, "{messages} messages");
        // No byte is lost or reordered.
        std::thread::scope(|scope| {
            scope.spawn(|| send(&writer, &bytes[written..written + 1_000_000], 5000, 1));
            expect(&reader, &bytes[..written + 1_000_000], 50_000, 2);
        });
    }
}

/// Both sockets leave the map when nothing waits in their queues, so a bulk transfer then costs as much as without splicing.
#[test]
fn what_goes_by_tcp_for_good_leaves_the_map() {
    let world = World::new();
    let bytes = stream(8, 20 << 20);
    let (mut client, mut server) = world.spliced();
    assert_eq!(world.keys(), 2);
    fill(&client, &bytes, 10_000);
    assert_eq!(world.reason("stalled"), 1);
    assert_eq!(world.keys(), 2);
    server.write_all(b"waits in a queue").unwrap();
    drain(&mut server);
    until("the reader has left", || {
        client.write_all(b"more").unwrap();
        drain(&mut server);
        world.keys() == 1
    });
    assert_eq!(client.hear(16), b"waits in a queue");
    until("the writer has left", || {
        client.write_all(b"more").unwrap();
        drain(&mut server);
        world.keys() == 0
    });
    let redirected = world.redirected();
    exchange(&client, &server, [3_000_000, 3_000_000], 10_000, 3);
    assert_eq!(world.redirected(), redirected);
}

/// Reads until the call would block.
fn drain(reader: &mut End) {
    let mut bytes = [0; 65_536];
    while (&reader.0).read(&mut bytes).is_ok_and(|got| got > 0) {}
}

#[test]
fn a_small_receive_buffer_is_obeyed() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = listen(at_port(PORT));
        set(&listener, libc::SOL_SOCKET, libc::SO_RCVBUF, 4096).unwrap();
        let (mut writer, reader) = (End::connect(at_port(PORT)).unwrap(), End::accept(&listener));
        let (mut by_queue, bytes) = (0, stream(6, 100_000));
        for piece in bytes[..100_000].chunks(100) {
            by_queue = world.redirected();
            if world.reason("stalled") == 1 {
                break;
            }
            writer.write_all(piece).unwrap();
        }
        let (_, room) = memory(&reader);
        assert!(by_queue <= u64::from(room), "{by_queue} of {room}");
    });
}

/// A message larger than the buffer, and one that exceeds the largest message.
#[test]
fn large_messages_arrive_whole() {
    let world = World::new();
    for length in [200_000, 600_000, 3_000_000] {
        let (client, server) = world.spliced();
        let bytes = stream(length as u64, length);
        std::thread::scope(|scope| {
            scope.spawn(|| send(&client, &bytes, length, 3));
            expect(&server, &bytes, 70_000, 4);
        });
    }
}

#[test]
fn without_room_connections_are_ordinary_ones() {
    let world = World::with(|options| options.sockets = Some(5));
    let pairs: Vec<_> = (0..10)
        .map(|number| {
            let (client, server) = world.pair();
            exchange_some(&client, &server, number);
            (client, server)
        })
        .collect();
    let status = world.status();
    assert_eq!(status.reason("spliced") + status.reason("full"), 10, "{:?}", status.reasons);
    assert!(status.reason("spliced") == 2 && status.connections == 2, "{:?}", status.reasons);
    drop(pairs);
    // There is room again.
    let (client, server) = world.spliced();
    exchange(&client, &server, [10_000, 10_000], 100, 1);
}

fn exchange_some(mut client: &End, mut server: &End, number: u64) {
    let bytes = stream(number, 100);
    client.write_all(&bytes).unwrap();
    server.write_all(&bytes).unwrap();
    for end in [client, server] {
        assert_eq!(End(end.0.try_clone().unwrap()).hear(100), bytes);
    }
}
