//! Calls on the two ends of a connection of this process, and ordinary traffic after them.

use crate::end::End;
use crate::link;
use crate::sys::net::Family::V4;

/// Bytes that are sent after the calls.
const AFTER: usize = 50_000;

/// Makes the calls on a connection that is not upgraded yet, and on one that is. Then uses each as before.
pub fn on_both(calls: fn(&mut End, &mut End)) {
    let (mut client, mut server) = link::cold_pair_ends(V4, 1);
    calls(&mut client, &mut server);
    client.send(100);
    server.recv(100);
    let (mut client, mut server) = link::own_pair(V4);
    calls(&mut client, &mut server);
    goes_on(&mut client, &mut server);
}

/// Checks that the connection can be used as before.
pub fn goes_on(client: &mut End, server: &mut End) {
    for _ in 0..AFTER / 500 {
        client.send(500);
        server.recv(500);
        server.send(500);
        client.recv(500);
    }
}
