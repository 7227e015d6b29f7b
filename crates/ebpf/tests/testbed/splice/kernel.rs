//! Properties of the kernel's sockmap that users of spliced sockets notice, as docs/splice.md lists them. A test that fails
//! because a kernel does better means that the page must be updated.

use super::options::{queued, received_by_tcp, recv, send, splice};
use super::world::World;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};

fn events(socket: &super::world::End) -> PollFlags {
    let mut asked = [PollFd::new(&socket.0, PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP)];
    poll(&mut asked, Some(&Timespec::default())).unwrap();
    asked[0].revents()
}

/// The same as with TCP.
#[test]
fn what_waits_can_be_counted_peeked_at_and_waited_for() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    assert_eq!(events(&server), PollFlags::OUT);
    client.write_all(b"hello").unwrap();
    client.write_all(b" world").unwrap();
    assert_eq!(events(&server), PollFlags::IN | PollFlags::OUT);
    assert_eq!((queued(&server).0, queued(&client).1), (11, 0));
    let mut text = [0; 11];
    assert_eq!(recv(&server, &mut text, libc::MSG_PEEK).unwrap(), 11);
    assert_eq!(&text, b"hello world");
    assert_eq!(server.hear(6), b"hello ");
    assert_eq!(queued(&server).0, 5);
    // TCP has carried nothing.
    assert_eq!(received_by_tcp(&server), 0);
    client.shutdown();
    assert_eq!(events(&server), PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP);
    assert_eq!(queued(&server).0, 5);
    assert_eq!(server.rest(), b"world");
}

#[test]
fn files_are_sent_as_ever() {
    let world = World::new();
    let (client, mut server) = world.spliced();
    let scratch = crate::scratch::Scratch::new();
    let path = scratch.file("file", &"a line of text\n".repeat(2000));
    let mut file = std::fs::File::open(path).unwrap();
    let mut sent = 0;
    while sent < 30_000 {
        sent += rustix::fs::sendfile(&client.0, &file, None, 30_000 - sent).unwrap();
    }
    let mut wanted = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut wanted).unwrap();
    assert!(server.hear(30_000) == wanted);
    assert_eq!(world.redirected(), 30_000);
}

/// splice(2) does not see the bytes in the sockmap queue.
#[test]
fn splicing_calls_do_not_see_what_is_queued() {
    let world = World::new();
    let (mut client, server) = world.spliced();
    let (_out, into) = std::io::pipe().unwrap();
    client.write_all(b"hello").unwrap();
    assert!(events(&server).contains(PollFlags::IN));
    assert_eq!(splice(&server, &into, 5).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// An urgent byte arrives as an ordinary one.
#[test]
fn urgent_bytes_are_ordinary_ones() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    client.write_all(b"be").unwrap();
    send(&client, b"!", libc::MSG_OOB).unwrap();
    assert!(!events(&server).contains(PollFlags::PRI));
    assert_eq!(server.hear(3), b"be!");
}

/// MSG_TRUNC discards bytes of a TCP stream, but here fills the buffer.
#[test]
fn truncating_reads_are_ordinary_ones() {
    let world = World::new();
    let (mut client, server) = world.spliced();
    client.write_all(b"hello").unwrap();
    let mut text = [0; 5];
    assert_eq!(recv(&server, &mut text, libc::MSG_TRUNC).unwrap(), 5);
    assert_eq!(&text, b"hello");
}

/// TCP would reset the connection. Here the peer sees an ordinary end, and a reset only when it writes.
#[test]
fn closing_with_unread_bytes_is_an_ordinary_end() {
    let world = World::new();
    let (mut client, server) = world.spliced();
    client.write_all(b"never read").unwrap();
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    client.write_all(b"?").unwrap();
    assert_eq!(client.write(b"?").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// Some kernels count only the sockmap queue, and not what TCP has brought after it.
#[test]
fn after_a_stall_not_all_may_be_counted() {
    let world = World::new();
    let (mut client, server) = world.spliced();
    let mut written = 0;
    while world.reason("stalled") == 0 {
        client.write_all(&[1; 10_000]).unwrap();
        written += 10_000;
    }
    let (by_queue, told) = (world.redirected() as i32, queued(&server).0);
    assert!(told == by_queue || told == written, "{told} of {written}, {by_queue} by queue");
}

/// TCP would report the reset once, and then EPIPE.
#[test]
fn a_reset_is_told_at_every_write() {
    let world = World::new();
    let (mut client, server) = world.spliced();
    server.reset_at_close();
    drop(server);
    for _ in 0..3 {
        assert_eq!(client.write(b"?").unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}
