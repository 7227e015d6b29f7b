//! All cases, in files by concept.

use crate::case::Case;

mod ancillary;
mod at_exit;
mod bad_pointers;
mod bad_times;
mod blocking;
mod calls;
mod close;
mod connecting;
mod counts;
mod crossed;
mod daemon;
mod death;
mod dup;
mod early;
mod end_of_stream;
mod epoll_edge;
mod epoll_level;
mod epoll_masks;
mod epoll_nested;
mod epoll_order;
mod epoll_sets;
mod epoll_waits;
mod epoll_wakeups;
mod exec;
mod flags;
mod fork;
mod fork_threads;
mod handlers;
mod identity;
mod interrupted;
mod limits;
mod looking;
mod mixed_sets;
mod nonblocking;
mod number_reuse;
mod other_ways;
mod pace;
mod passing;
mod pid_namespaces;
mod poll_select;
mod raw_calls;
mod registrations;
mod reset;
mod shared_sets;
mod spawn;
mod splicing;
mod stdio;
mod stream;
mod told_once;
mod undelivered;
mod unpreloaded;
mod urgent;
mod uring;
mod uring_files;
mod wake_ups;
mod zero_copy;

const GROUPS: &[&[Case]] = &[
    calls::SENDS,
    calls::RECEIVES,
    stream::CASES,
    blocking::CASES,
    interrupted::CASES,
    nonblocking::CASES,
    flags::CASES,
    ancillary::CASES,
    epoll_level::CASES,
    epoll_edge::CASES,
    epoll_masks::CASES,
    epoll_sets::CASES,
    epoll_nested::CASES,
    epoll_order::CASES,
    epoll_waits::CASES,
    epoll_wakeups::CASES,
    poll_select::CASES,
    mixed_sets::CASES,
    shared_sets::CASES,
    registrations::CASES,
    wake_ups::CASES,
    dup::CASES,
    close::CASES,
    crossed::CASES,
    number_reuse::CASES,
    fork::CASES,
    fork_threads::CASES,
    pid_namespaces::CASES,
    exec::CASES,
    spawn::CASES,
    passing::CASES,
    undelivered::CASES,
    end_of_stream::CASES,
    reset::CASES,
    death::CASES,
    connecting::CASES,
    identity::CASES,
    unpreloaded::CASES,
    stdio::CASES,
    zero_copy::CASES,
    splicing::CASES,
    urgent::CASES,
    other_ways::CASES,
    uring::CASES,
    uring_files::CASES,
    looking::CASES,
    limits::CASES,
    bad_pointers::CASES,
    bad_times::CASES,
    counts::CASES,
    raw_calls::CASES,
    told_once::CASES,
    handlers::CASES,
    pace::CASES,
    daemon::CASES,
    at_exit::CASES,
    early::CASES,
];

/// In the order in which `posix-run` starts them.
pub fn all() -> impl Iterator<Item = &'static Case> {
    GROUPS.iter().copied().flatten()
}
