//! Files that an io_uring has by an index: the entries that use them name no descriptor. And an io_uring with new queues.

use super::uring::{beside_another, goes_on, write};
use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::sys::errno::EINVAL;
use crate::sys::net::{self, Family::V4};
use crate::sys::uring::{self, Entry, Ring};
use crate::sys::{Fd, fds};

pub const CASES: &[Case] = &[
    case("uring.registered_files", || beside_another(registered)).reason("kernel-feature"),
    case("uring.files_registered_by_an_entry", || beside_another(registered_by_entry)).reason("kernel-feature"),
    case("uring.files_registered_by_the_index_of_a_ring", || beside_another(by_index_of_ring)).reason("kernel-feature"),
    case("uring.file_registered_before_it_is_connected", registered_early).reason("dup"),
    case("uring.ring_with_new_queues", resized).reason("kernel-feature"),
];

/// Writes to a file by its index.
fn write_by_index(ring: &mut Ring, index: Fd, end: &mut End) {
    let bytes = end.tx.upcoming(300);
    let entry = Entry { flags: uring::FIXED_FILE, ..Ring::writing(index, &bytes) };
    assert_eq!(ring.run(entry), Ok(300));
    end.tx.sent(300);
}

fn registered(client: &mut End, server: &mut End) {
    registered_by(Ring::register_files, client, server);
}

/// The ring, too, is named by an index.
fn by_index_of_ring(client: &mut End, server: &mut End) {
    registered_by(Ring::register_files_by_index, client, server);
}

fn registered_by(register: fn(&Ring, &[Fd]), client: &mut End, server: &mut End) {
    let mut ring = Ring::new();
    let (out, into) = fds::pipe(0);
    register(&ring, &[out, -1, client.fd(), into]);
    write_by_index(&mut ring, 2, client);
    server.recv(300);
    client.send(100);
    server.recv(100);
}

fn registered_by_entry(client: &mut End, server: &mut End) {
    let mut ring = Ring::new();
    let (out, _into) = fds::pipe(0);
    ring.register_files(&[out, out]);
    let numbers = [client.fd()];
    let (address, len) = (numbers.as_ptr() as u64, 1);
    let update = Entry { opcode: uring::OP_FILES_UPDATE, fd: -1, offset: 1, address, len, ..Entry::default() };
    assert_eq!(ring.run(update), Ok(1));
    server.send(50);
    let mut buf = [0; 50];
    let entry = Entry { flags: uring::FIXED_FILE, ..Ring::reading(1, &mut buf) };
    assert_eq!(ring.run(entry), Ok(50));
    client.rx.arrived(&buf);
}

/// When the socket is registered it is no connection yet.
fn registered_early() {
    let listener = Listener::new(V4);
    let (mut ring, socket) = (Ring::new(), net::socket(V4, libc::SOCK_CLOEXEC));
    ring.register_files(&[socket]);
    net::connect(socket, &listener.addr()).expect("connect");
    let (mut client, mut server) = (End::new(socket, Side::Client), End::new(listener.accept(), Side::Server));
    link::warm_up_pair(&mut client, &mut server);
    write_by_index(&mut ring, 0, &mut client);
    server.recv(300);
    let (mut third, mut fourth) = link::numbered_pair(V4, 1);
    goes_on(&mut third, &mut fourth);
}

/// The library has not mapped the new queues, so it sees no entries there: no connection of the process can stay in a ring.
fn resized() {
    let (mut client, mut server) = link::own_pair(V4);
    let mut ring = match Ring::with(uring::SINGLE_ISSUER | uring::DEFER_TASKRUN) {
        Err(EINVAL) => Ring::new(), // before Linux 6.1
        ring => ring.expect("io_uring_setup"),
    };
    ring.resize();
    write(&mut ring, &mut client, 300);
    server.recv(300);
    goes_on(&mut client, &mut server);
}
