//! Signal handlers of the program: the library's handlers, which turn bad pointers into EFAULT, must not be noticeable. A jump
//! out of a handler leaves nothing behind.

use crate::case::{Case, case};
use crate::link;
use crate::sys::Fd;
use crate::sys::handlers::*;
use crate::sys::net::Family::V4;

/// Bytes by ring after the warm-up show that the connection has stayed there.
const AFTER: usize = 50_000;
pub const CASES: &[Case] = &[
    case("handlers.see_what_the_kernel_says", || one(handlers_see_what_the_kernel_says::check)),
    case("handlers.of_sent_signals", || one(handlers_of_sent_signals::check)),
    case("handlers.may_nest_or_not", || one(handlers_may_nest_or_not::check)),
    case("handlers.have_their_stack", || one(handlers_have_their_stack::check)),
    case("handlers.jump_out", || one(handlers_jump_out::check)),
    case("handlers.are_shown_as_they_are_set", || one(handlers_are_shown_as_they_are_set::check)),
    case("handlers.by_system_call", || one(handlers_by_system_call::check)),
    case("handlers.installed_past_libc", || one(handlers_installed_past_libc::check)),
    case("handlers.blocked_signals", || one(handlers_blocked_signals::check)),
    // These fork, and the child returns the connection to the kernel.
    case("handlers.blocked_signals_are_shown", || one(handlers_blocked_signals_are_shown::check)),
    case("handlers.default_ends_the_process", || one(handlers_default_ends_the_process::check)),
    case("handlers.for_one_signal", || one(handlers_for_one_signal::check)),
    case("handlers.ignored_stay_ignored_by_exec", || one(handlers_ignored_stay_ignored_by_exec::check)),
    case("handlers.jumps_out_of_sends", || pair(jumps_out_of_sends::check)),
    case("handlers.jumps_out_of_interrupted_sends", || pair(jumps_out_of_interrupted_sends::check)),
    case("handlers.jumps_out_of_waits", || pair(jumps_out_of_waits::check)),
    case("handlers.jumps_from_other_stacks", || pair(jumps_from_other_stacks::check)),
];

fn one(check: fn(Fd)) {
    pair(|fd, _| check(fd));
}

fn pair(check: impl FnOnce(Fd, Fd)) {
    let (client, server) = link::own_pair(V4);
    check(client.fd(), server.fd());
    // The bytes that the check has sent follow no pattern, so a new pattern begins.
    let renumbered = |fd, side| crate::end::End::numbered(fd, side, 1);
    let (mut client, mut server) =
        (renumbered(client.fd(), crate::end::Side::Client), renumbered(server.fd(), crate::end::Side::Server));
    for _ in 0..AFTER / 1000 {
        client.send(1000);
        server.recv(1000);
        server.send(1000);
        client.recv(1000);
    }
}
